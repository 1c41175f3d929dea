"""Bugs of the comparison of a node and its master."""

from mutants.planted import Edit, Mutant, test

RECONCILE = "native/metadata/reconcile.cc"
FILE = "metadata/test_reconcile"
NEVER_DIFFERS = test(FILE, "test_a_node_that_does_as_it_is_told_never_differs")

MUTANTS = [
    Mutant(
        "unsettled-mark-is-told",
        "A mark is told while puts at or below it are unfinished: what is put meanwhile reads as a difference.",
        (Edit(RECONCILE, "    if (settled_id() >= session.mark) session.told", "    session.told"),),
        (test(FILE, "test_an_unfinished_put_holds_the_comparison_back_and_is_never_ended"),),
    ),
    Mutant(
        "compared-at-another-retire",
        "Reports are compared although they were made before, or after, other retires.",
        (
            Edit(
                RECONCILE,
                "is_of_mark && report.last_command_id == session.confirmed_command_id &&",
                "is_of_mark &&",
            ),
        ),
        (test(FILE, "test_a_retire_under_way_is_no_mismatch"), NEVER_DIFFERS),
    ),
    Mutant(
        "failed-put-counts-as-held",
        "What was retired without ever having been live is compared as if the node's answer were known.",
        (Edit(RECONCILE, "           segment.unsure_count == 0 && segment", "           segment"),),
        (test(FILE, "test_a_put_that_failed_may_be_there_until_its_retire_is_confirmed"), NEVER_DIFFERS),
    ),
    Mutant(
        "list-that-begins-again-ends-what-is-live",
        "A replica that a node names twice is taken for one that nobody knows.",
        (
            Edit(
                RECONCILE,
                "        known->is_named = true;\n        return;",
                "        const bool is_first = !known->is_named;\n        known->is_named = true;\n"
                "        if (is_first) return;",
            ),
        ),
        (test(FILE, "test_a_list_that_begins_again_ends_nothing_twice"),),
    ),
    Mutant(
        "retiring-replica-called-orphan",
        "What a node lists and is about to be told to end counts as a replica that nobody knows.",
        (
            Edit(
                RECONCILE,
                "    if (retiring_.find(replica) != nullptr) return;\n    const Segment",
                "    const Segment",
            ),
        ),
        (test(FILE, "test_what_retires_before_the_index_is_walked_is_no_orphan"),),
    ),
    Mutant(
        "ghosts-stay",
        "What a node does not list stays in the index.",
        (
            Edit(
                RECONCILE,
                "                if (!expected.is_named) forget_ghost(",
                "                if (false) forget_ghost(",
            ),
        ),
        (test(FILE, "test_a_ghost_is_forgotten_and_why_tells_that_it_was_lost"),),
    ),
    Mutant(
        "deposed-master-goes-on-serving",
        "A master that heard of a later one answers as before.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (deposed_by() == 0 || command.verb == wire::Verb::kStats",
                "    if (deposed_by() != 1 || command.verb == wire::Verb::kStats",
            ),
        ),
        (
            test(
                "metadata/test_stepping_down",
                "test_an_older_master_refuses_everything_and_says_who_reigns",
            ),
        ),
    ),
    Mutant(
        "master-of-an-older-reign-deposes",
        "Whoever names another master ends this one's reign, the later one's too.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (std::tie(epoch, master) <= std::tie(epoch_, master_)) return;",
                "    if (epoch == 0) return;",
            ),
        ),
        (
            test(
                "metadata/test_stepping_down",
                "test_a_master_of_no_later_reign_deposes_nobody",
            ),
        ),
    ),
]
