"""Bugs by which what was removed comes back with a later master."""

from __future__ import annotations

from mutants.planted import Edit, Mutant, test

VERBS = "native/metadata/tombstone_verbs.cc"
TESTS = "metadata/test_tombstones"
LANE = "master/test_lane"

MUTANTS = [
    Mutant(
        "unconfirmed-ends-untold",
        "Replicas that ended and whose node has not confirmed are not told for a later master.",
        (Edit(VERBS, "if (since_ms + kTellTombstonesMs <= now_ms_) own", "if (since_ms > now_ms_) own"),),
        (test(TESTS, "test_a_value_that_ended_unheard_by_its_node_does_not_come_back"),),
    ),
    Mutant(
        "floor-forgotten",
        "Of more ended replicas than can be named the others come back.",
        (
            Edit(
                VERBS,
                "        segment.ended_floor = std::max(segment.ended_floor, wire::make_id(epoch_, counter_));\n",
                "",
            ),
        ),
        (test(TESTS, "test_more_than_can_be_named_gives_up_all_that_the_node_held_then"),),
    ),
    Mutant(
        "expelled-comes-back",
        "A node that was expelled unheard is taken in by the next master with all it holds.",
        (
            Edit(
                "native/metadata/tombstones.cc",
                "    return known_epoch < closed_epoch_ || is_expelled(incarnation);",
                "    return known_epoch < closed_epoch_ && !is_expelled(incarnation);",
            ),
        ),
        (test(TESTS, "test_a_node_that_was_expelled_brings_nothing_back"),),
    ),
    Mutant(
        "missed-reign-is-taken-in",
        "A node that followed no master for a whole reign brings back what was removed in it.",
        (Edit("native/metadata/rebuild.cc", "    tombstones_.close(first_epoch_);\n", ""),),
        (test(TESTS, "test_a_node_that_missed_a_whole_reign_is_too_late"),),
    ),
    Mutant(
        "told-too-late-to-end",
        "What a node tells to be dead ends nothing that another one had brought before.",
        (Edit(VERBS, "    is_dead_sweep_due_ = true;\n", "    is_dead_sweep_due_ = false;\n"),),
        (test(TESTS, "test_a_node_that_comes_first_is_put_right_by_one_that_heard_of_it"),),
    ),
    Mutant(
        "evicted-and-replaced-comes-back",
        "An evicted value that its node still holds is no tombstone when the key gets another one.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        await_earlier_ends(subject, command, effects);\n",
                "",
            ),
        ),
        (
            test(TESTS, "test_an_evicted_value_does_not_come_back_after_another_one_or_a_remove"),
            test(LANE, "test_a_put_is_answered_when_the_node_has_heard_that_the_old_value_was_evicted"),
        ),
    ),
    Mutant(
        "answered-before-it-is-kept",
        "A remove that only the list of tombstones makes last is answered before the list is kept.",
        (
            Edit(
                "native/master/state_driver_promises.cc",
                "    return !options_.keeps_tombstones || call.needs_kept <= kept_generation_;",
                "    return !options_.keeps_tombstones || call.needs_kept >= kept_generation_;",
            ),
        ),
        (test(LANE, "test_what_a_later_master_must_know_is_answered_once_it_is_kept"),),
    ),
    Mutant(
        "file-without-tombstones",
        "A master that starts does not read what its file says of removed values.",
        (
            Edit(
                "master/mooncake_master/reign.py",
                '            self.tombstones = base64.b64decode(kept.get("tombstones", ""), validate=True)\n',
                '            base64.b64decode(kept.get("tombstones", ""), validate=True)\n',
            ),
        ),
        (test("master/test_reign", "test_tombstones_are_kept_for_the_next_reign"),),
    ),
]
