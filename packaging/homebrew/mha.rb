# Formula for Homebrew. docs/releasing.md: url and sha256 are replaced when a release is made.
class Mha < Formula
  desc "Multi-head attention in C: library and program"
  homepage "https://example.org/mha"
  url "https://example.org/mha/mha-0.1.0-source.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "pkgconf" => :build
  depends_on "cairo"
  depends_on "jansson"
  depends_on :linux # has not been tried on macOS
  depends_on "pcre2"
  depends_on "popt"
  depends_on "utf8proc"
  depends_on "zlib"

  def install
    system "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DMHA_MPI=OFF", "-DBUILD_TESTING=OFF", *std_cmake_args
    system "cmake", "--build", "build"
    system "cmake", "--install", "build"
  end

  test do
    assert_match "The built-in model", shell_output("#{bin}/mha demo")
    (testpath/"version.c").write <<~C
      #include <mha/mha.h>
      #include <stdio.h>
      int main(void) { return puts(mha_version()) < 0; }
    C
    system ENV.cc, "version.c", "-I#{include}", "-L#{lib}", "-lmha", "-o", "version"
    assert_match version.to_s, shell_output("./version")
  end
end
