/* test_heads_clusters.c - tests classical multidimensional scaling with points in a plane, and compares average linkage
 * with scipy.cluster.hierarchy.linkage (1.17) for the same points, many of them at equal distances. */
#include "heads/diversity/diversity.h"
#include "support/check.h"
#include <math.h>

enum { MAX = 12 };

/* Sets js to the squared distances of points in a plane. The tested functions use the square root of js as the
 * distance. */
static void squares(int64_t n, double (*points)[2], double *js)
{
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = 0; b < n; b++)
            js[a * n + b] = pow(points[a][0] - points[b][0], 2) + pow(points[a][1] - points[b][1], 2);
}

static void check_merges(int64_t n, double (*points)[2], const mha_head_merge *want)
{
    double js[MAX * MAX];
    mha_head_merge got[MAX];
    squares(n, points, js);
    assert_int_equal(mha__head_clusters(NULL, n, js, got, NULL), MHA_OK);
    for (int64_t i = 0; i < n - 1; i++) {
        const bool same = got[i].a == want[i].a && got[i].b == want[i].b && got[i].size == want[i].size;
        if (!same || fabs(got[i].height - want[i].height) > 1e-14)
            fail_msg("merge %d must be as in scipy (got clusters %d and %d at height %.17g, size %d)", (int)i,
                     (int)got[i].a, (int)got[i].b, got[i].height, (int)got[i].size);
    }
}

static void merges_of_scipy(void **state)
{
    (void)state;
    static double line[8][2] = {{0, 0}, {1, 0}, {2, 0}, {4, 0}, {5, 0}, {9, 0}, {9, 0}, {20, 0}};
    static const mha_head_merge of_line[] = {{5, 6, 0, 2},
                                             {0, 1, 1, 2},
                                             {3, 4, 1, 2},
                                             {2, 9, 1.5, 3},
                                             {10, 11, 3.5, 5},
                                             {8, 12, 6.6, 7},
                                             {7, 13, 15.714285714285714, 8}};
    static double grid[12][2] = {{1, 2}, {3, 3}, {0, 0}, {3, 3}, {0, 1}, {3, 1},
                                 {1, 3}, {1, 1}, {2, 2}, {0, 0}, {3, 3}, {3, 2}};
    static const mha_head_merge of_grid[] = {{1, 3, 0, 2},
                                             {2, 9, 0, 2},
                                             {10, 12, 0, 3},
                                             {0, 6, 1, 2},
                                             {4, 7, 1, 2},
                                             {5, 11, 1, 2},
                                             {8, 15, 1.2071067811865475, 3},
                                             {13, 16, 1.2071067811865475, 4},
                                             {14, 17, 1.5, 5},
                                             {18, 20, 1.9110414174491681, 8},
                                             {19, 21, 2.9826841074016768, 12}};
    check_merges(8, line, of_line);
    check_merges(12, grid, of_grid);
    check_merges(1, line, NULL);
}

/* Centered points whose principal axes are the coordinate axes must be recovered from their distances, up to the sign
 * of each axis, which is specified. */
static void map_of_a_plane(void **state)
{
    (void)state;
    static double points[5][2] = {{-4, 1}, {-4, -1}, {2, 1.5}, {2, -1.5}, {4, 0}};
    double js[25], xy[10], eigenvalues[2];
    squares(5, points, js);
    assert_int_equal(mha__head_map(NULL, 5, js, xy, eigenvalues, NULL), MHA_OK);
    assert_true(fabs(eigenvalues[0] - 56) < 1e-12 && fabs(eigenvalues[1] - 6.5) < 1e-12);
    const double sign = xy[1] > 0 ? 1 : -1;
    for (int i = 0; i < 5; i++) {
        const double first = xy[2 * i], second = sign * xy[2 * i + 1];
        assert_true(fabs(fabs(first) - fabs(points[i][0])) < 1e-12);
        assert_true(fabs(fabs(second) - fabs(points[i][1])) < 1e-12);
    }
    /* on the second axis, the coordinate of largest magnitude must be positive; two magnitudes may be equal within
     * rounding errors */
    double max = 0, min = 0;
    for (int i = 0; i < 5; i++) {
        max = fmax(max, xy[2 * i + 1]);
        min = fmin(min, xy[2 * i + 1]);
    }
    assert_true(max >= -min - 1e-12);
    for (int a = 0; a < 5; a++)
        for (int b = 0; b < 5; b++) {
            const double d = pow(xy[2 * a] - xy[2 * b], 2) + pow(xy[2 * a + 1] - xy[2 * b + 1], 2);
            assert_true(fabs(d - js[a * 5 + b]) < 1e-12);
        }
}

static void map_of_few(void **state)
{
    (void)state;
    const double none[1] = {0}, two[4] = {0, 0.25, 0.25, 0};
    double xy[4], eigenvalues[2];
    assert_int_equal(mha__head_map(NULL, 1, none, xy, eigenvalues, NULL), MHA_OK);
    assert_true(xy[0] == 0 && xy[1] == 0 && eigenvalues[0] == 0 && eigenvalues[1] == 0);
    assert_int_equal(mha__head_map(NULL, 2, two, xy, eigenvalues, NULL), MHA_OK);
    assert_true(fabs(fabs(xy[0]) - 0.25) < 1e-15 && fabs(xy[0] + xy[2]) < 1e-15);
    assert_true(fabs(eigenvalues[0] - 0.125) < 1e-15 && fabs(xy[1]) < 1e-8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(merges_of_scipy), cmocka_unit_test(map_of_a_plane),
                                       cmocka_unit_test(map_of_few)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
