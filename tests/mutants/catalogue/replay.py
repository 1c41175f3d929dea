"""Bugs of traces that are driven through the state machine, and of the bounds beside them."""

from mutants.planted import Edit, Mutant, drawn, test

LRU = drawn("client/test_simulate", "test_lru_hits_what_a_list_in_order_of_use_hits")
BELADY = drawn("client/test_simulate", "test_belady_hits_as_much_as_any_choice_can")

MUTANTS = [
    Mutant(
        "every-hit-is-a-prefix-hit",
        "A simulated request counts what it found behind a missing block as prefix.",
        (
            Edit(
                "native/replay/replay.cc",
                "std::find(hit_.begin(), hit_.end(), 0);",
                "hit_.begin() + std::count(hit_.begin(), hit_.end(), 1);",
            ),
        ),
        (LRU, test("client/test_simulate", "test_a_known_trace_has_known_figures")),
    ),
    Mutant(
        "replay-keeps-its-leases",
        "A simulated request never gives back what it leased.",
        (
            Edit(
                "native/replay/replay.cc",
                "        if (is_hit) leased.push_back(keys[i]);\n",
                "        if (is_hit && i > keys.size()) leased.push_back(keys[i]);\n",
            ),
        ),
        (LRU, test("client/test_simulate", "test_the_pool_holds_as_many_blocks_as_it_says")),
    ),
    Mutant(
        "belady-drops-the-soonest",
        "Belady's bound drops what is asked for again first.",
        (
            Edit(
                "native/replay/bounds.h",
                "{ return next < other.next; }",
                "{ return next > other.next; }",
            ),
        ),
        (BELADY,),
    ),
]
