#!/usr/bin/env python3
"""The texts that the built-in model learns from: made up, one text a line, the same on every machine.

    python3 tools/builtin_text.py SEED LINES >texts.txt
    python3 tools/builtin_text.py stories SEED LINES >stories.txt
    python3 tools/builtin_text.py rows SEED COUNT FIRST KINDS >rows.bin

Nothing is taken from anywhere: words are put together by the small grammar below, drawn with splitmix64, so the licence is that of
this project. A third are stories: people with names and pronouns, verbs that agree with their subjects, speech in quotes, things
that are asked for again. The rest are tasks whose answer stands in the text: lists said again, nonsense said again, keys with values,
and counting, sums, the alphabet, days and months. Much repeats itself, since that is what induction heads are made by.

`stories` writes stories alone: `stories 3 400` is share/mha/texts/stories.txt.

`rows` writes ids in place of texts, 16 bits each: COUNT blocks of 48, each a row of 8 to 24 ids drawn from FIRST .. FIRST + KINDS - 1 that repeats
itself to the end of the block. Where nothing else can be learned, and the ids are few, induction is found within some hundred steps.
"""
import array
import sys

MASK = (1 << 64) - 1

WOMEN = "Anna Clara Eva Greta Ida Julia Lena Maria Nora Paula Rosa Tina".split()
MEN = "Adam Ben David Emil Felix Hugo Jonas Leo Martin Otto Paul Tom".split()
COLOURS = "red blue green yellow black white brown grey".split()
QUALITIES = "big small old new round heavy soft cold warm bright".split()
MOODS = "happy tired hungry glad sad quiet busy brave".split()
THINGS = "ball book box hat lamp cup key coat bell drum kite boat map stone ring basket".split()
ANIMALS = "dog cat bird horse fox mouse hen goat rabbit duck".split()
PLACES = "garden house kitchen school forest market tower barn street river station mill".split()
EATEN = "bread soup apples cake cheese rice plums honey".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
LETTERS = "a b c d e f g h i j k l m n o p q r s t u v w x y z".split()
NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
PLURALS = {"box": "boxes", "mouse": "mice", "fox": "foxes"}
ACTIONS = [("runs", "run"), ("sleeps", "sleep"), ("sings", "sing"), ("waits", "wait"), ("jumps", "jump"), ("plays", "play")]
WORDS = COLOURS + QUALITIES + MOODS + THINGS + ANIMALS + PLACES + EATEN + NUMBERS
COMMON = COLOURS + THINGS + ANIMALS
STARTS = "b c d f g h j k l m n p r s t v w z br cl dr fl gr pl qu sh sk sp st th tr".split()
VOWELS = "a e i o u ai ea ee oo ou".split()
ENDS = "b ck d g l m n p r s t x nd ng nt rd rk sh st".split() + [""] * 5


class Draw:
    """splitmix64 (Steele, Lea and Flood 2014)."""

    def __init__(self, seed):
        self.state = seed & MASK

    def below(self, n):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = ((self.state ^ (self.state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % n

    def between(self, least, most):
        return least + self.below(most - least + 1)

    def one(self, choices):
        return choices[self.below(len(choices))]

    def some(self, choices, count):
        """Different ones, in a drawn order."""
        left = list(choices)
        return [left.pop(self.below(len(left))) for _ in range(count)]

    def weighted(self, choices):
        """choices: (weight, what)."""
        place = self.below(sum(weight for weight, _ in choices))
        for weight, what in choices:
            place -= weight
            if place < 0:
                return what


def plural(noun):
    return PLURALS.get(noun, noun + "s")


def article(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def capital(text):
    return text[0].upper() + text[1:]


# ---- stories ----


class Person:
    def __init__(self, draw, woman):
        self.name = draw.one(WOMEN if woman else MEN)
        self.he, self.him, self.his = ("she", "her", "her") if woman else ("he", "him", "his")


class Scene:
    """Two people whose pronouns differ, a thing, an animal and two places: what the sentences of one story speak of."""

    def __init__(self, draw):
        woman = draw.below(2)
        self.draw, self.a, self.b = draw, Person(draw, woman), Person(draw, 1 - woman)
        self.colour, self.thing = draw.one(COLOURS), draw.one(THINGS)
        self.animal = draw.one(ANIMALS)
        self.place, self.other = draw.some(PLACES, 2)


def scene_begins(s):
    a, d = s.a, s.draw
    return d.one([
        f"{a.name} has {article(s.colour)} {s.thing}. {capital(a.his)} {s.thing} is in the {s.place}.",
        f"One day {a.name} finds {article(s.colour)} {s.thing} in the {s.place}.",
        f"On {d.one(DAYS)} {a.name} goes to the {s.place} with {a.his} {s.colour} {s.thing}.",
        f"There is {article(s.colour)} {s.thing} in the {s.place}. It is the {s.thing} of {a.name}.",
    ])


def scene_meets(s):
    a, b = s.a, s.b
    return s.draw.one([
        f"{b.name} comes to the {s.place} and sees {a.name} with the {s.thing}.",
        f"{a.name} meets {b.name} near the {s.place}. {capital(b.he)} has {article(s.animal)}.",
        f"{a.name} shows the {s.colour} {s.thing} to {b.name}, and {b.he} likes it.",
    ])


def scene_speaks(s):
    a, b, d = s.a, s.b, s.draw
    return d.one([
        f'"Where is the {s.thing}?" asks {b.name}. "The {s.thing} is in the {s.place}," says {a.name}.',
        f'{b.name} asks {a.name}: "What colour is the {s.thing}?" "The {s.thing} is {s.colour}," says {a.name}.',
        f'"I like the {s.colour} {s.thing}," says {b.name}. "Then I will give the {s.thing} to you," says {a.name}.',
        f'{a.name} says, "Look, {b.name}, the {s.animal} is {d.one(MOODS)}." {b.name} looks at the {s.animal}.',
    ])


def scene_gives(s):
    a, b, d = s.a, s.b, s.draw
    food = d.one(EATEN)
    return d.one([
        f"{a.name} gives the {s.thing} to {b.name}. {capital(b.he)} thanks {a.him}.",
        f"Then {b.name} takes the {s.thing}, and {a.name} follows {b.him} to the {s.other}.",
        f"{a.name} and {b.name} are {d.one(MOODS)}. They eat {food} in the {s.other}, and the {s.animal} eats {food} too.",
        f"{b.name} is {d.one(MOODS)} because {b.he} has the {s.thing} now.",
    ])


def scene_many(s):
    """Verbs agree with the first noun, not with the nearest."""
    d, (one, many) = s.draw, s.draw.one(ACTIONS)
    x, y = d.some(ANIMALS, 2)
    q = d.one(QUALITIES + COLOURS)
    return d.one([
        f"The {x} near the {plural(y)} {one}. It is {q}.",
        f"The {plural(x)} near the {y} {many}. They are {q}.",
        f"{capital(d.one(NUMBERS[2:]))} {plural(x)} {many} in the {s.other}, but one {y} {one} alone.",
        f"The {x} of {s.a.name} {one}, and the {plural(y)} of {s.b.name} {many}.",
    ])


def scene_ends(s):
    return s.draw.one([
        f"At night {s.a.name} goes home with {s.a.his} {s.animal}. Good night, {s.a.name}. Good night, {s.b.name}.",
        f"So the {s.colour} {s.thing} is in the {s.other} now.",
        f"{s.a.name} and {s.b.name} go home. The {s.thing} stays in the {s.place}.",
    ])


def story(draw):
    s = Scene(draw)
    middle = [draw.one([scene_meets, scene_speaks, scene_gives, scene_many])(s) for _ in range(draw.between(2, 5))]
    return " ".join([scene_begins(s)] + middle + [scene_ends(s)])


def said_again(draw):
    """Sentences that one says and another says again, word for word."""
    s = Scene(draw)
    said = " ".join(draw.one([scene_begins, scene_gives, scene_many, scene_ends])(s) for _ in range(draw.between(1, 2)))
    return f"{s.a.name} says: {said} {s.b.name} says it too: {said}"


# ---- tasks ----


def nonsense(draw):
    return "".join(draw.one(STARTS) + draw.one(VOWELS) + draw.one(ENDS) for _ in range(draw.weighted([(5, 1), (4, 2), (1, 3)])))


def piece(draw):
    """A word, a part of one, letters or digits: what tokens are made of, in no order at all."""
    word = draw.one(WORDS + WOMEN + MEN + DAYS + MONTHS)
    return draw.weighted([
        (6, word),
        (3, word[draw.below(len(word)):]),
        (3, word[:draw.between(1, len(word))]),
        (2, nonsense(draw)),
        (1, draw.one(LETTERS)),
        (1, str(draw.below(100))),
        (1, draw.one(".,?!:;\"'-+=")),
    ])


def scramble(draw):
    """Pieces with and without a space between, twice or more: only who finds the first copy foresees the second."""
    count = length_of_row(draw)
    row = "".join(draw.one(["", " ", " "]) + piece(draw) for _ in range(count)).strip()
    return " ".join(said_often(draw, row, 2 * count))


def length_of_row(draw):
    """Short ones more often: a head finds its way to the right one of three words sooner than of twenty."""
    return draw.between(2, draw.one([4, 8, 24]))


def said_often(draw, row, count):
    """A row of `count` words twice, or more often where it is short."""
    return [row] * draw.between(2, max(2, min(12, 64 // count)))


def row_of_words(draw, count):
    """Half of the rows are of a few words only, which a head learns to find before all others."""
    return " ".join(draw.some(draw.one([COMMON, WORDS + WOMEN + MEN + DAYS + MONTHS + LETTERS]), count))


def again(draw):
    """Known words in no order, twice or more."""
    count = length_of_row(draw)
    return " ".join(said_often(draw, row_of_words(draw, count), count))


def repeat(draw):
    count = length_of_row(draw)
    row = draw.one([row_of_words(draw, count), " ".join(nonsense(draw) for _ in range(max(2, count // 2)))])
    return draw.one([
        f"Repeat after me: {row}. {row}.",
        f"Say it three times: {row}. {row}. {row}.",
        f"{draw.one(WOMEN + MEN)} says: {row}. {draw.one(WOMEN + MEN)} says: {row}.",
        f"{row}, {row}, {row}.",
    ])


def keys(draw):
    count = draw.between(2, 7)
    names = draw.some(THINGS + ANIMALS + WOMEN + MEN, count) if draw.below(2) else [nonsense(draw) for _ in range(count)]
    of = draw.one([lambda: str(draw.below(100)), lambda: draw.one(COLOURS), lambda: nonsense(draw), lambda: draw.one(PLACES)])
    pairs = [(name, of()) for name in names]
    asked = [draw.one(pairs) for _ in range(draw.between(2, 6))]
    return ", ".join(f"{k}: {v}" for k, v in pairs) + "." + "".join(f" {k}? {v}." for k, v in asked)


def count_up(draw):
    step = draw.weighted([(4, 1), (1, 2), (1, 5), (1, 10)])
    first, length = draw.between(0, 40), draw.between(4, 16)
    row = [first + step * i for i in range(length)]
    if draw.below(3) == 0:
        row.reverse()
    return f"Count from {row[0]} to {row[-1]}: " + " ".join(map(str, row)) + "."


def sums(draw):
    def one():
        a, b = draw.below(21), draw.below(21)
        return draw.one([f"{a} + {b} = {a + b}.", f"{max(a, b)} - {min(a, b)} = {max(a, b) - min(a, b)}."])
    return " ".join(one() for _ in range(draw.between(3, 10)))


def in_order(draw):
    """A part of the alphabet, the week or the year."""
    name, row, around = draw.one([("The letters", LETTERS, False), ("The days", DAYS, True), ("The months", MONTHS, True),
                                  ("The numbers", NUMBERS, False)])
    first = draw.below(len(row)) if around else draw.below(len(row) - 3)
    length = draw.between(3, len(row)) if around else draw.between(3, len(row) - first)
    return f"{name} from {row[first]} on: " + " ".join(row[(first + i) % len(row)] for i in range(length)) + "."


KINDS = [(16, story), (6, said_again), (12, scramble), (36, again), (12, repeat), (10, keys), (4, count_up), (2, sums), (2, in_order)]


def texts(kinds, seed, lines):
    draw = Draw(seed)
    for _ in range(lines):
        print(draw.weighted(kinds)(draw))


def rows(seed, count, first, kinds):
    draw, block = Draw(seed), 48
    ids = array.array("H")
    for _ in range(count):
        row = [first + draw.below(kinds) for _ in range(draw.between(8, 24))]
        ids.extend((row * block)[:block])
    if sys.byteorder == "big":
        ids.byteswap()
    sys.stdout.buffer.write(ids.tobytes())


def main():
    if len(sys.argv) == 3:
        texts(KINDS, *map(int, sys.argv[1:]))
    elif len(sys.argv) == 4 and sys.argv[1] == "stories":
        texts([(1, story)], *map(int, sys.argv[2:]))
    elif len(sys.argv) == 6 and sys.argv[1] == "rows":
        rows(*map(int, sys.argv[2:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
