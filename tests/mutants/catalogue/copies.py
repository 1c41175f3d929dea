"""Bugs of copies between nodes: repair, handover, the node that fetches."""

from mutants.planted import Edit, Mutant, drawn, native, test

MODEL = drawn("metadata/test_copy_model", "TestCopies")

MUTANTS = [
    Mutant(
        "copy-without-a-guard",
        "An object that is being copied stays in the eviction orders.",
        (
            Edit(
                "native/metadata/copy_verbs.cc",
                "        if (auto* order = order_of(object, placed(object, i).segment)) order->withdrawn(object);\n"
                "    }\n    object.flags |= kGuarded;",
                "        static_cast<void>(i);\n    }\n    object.flags |= kGuarded;",
            ),
        ),
        (test("metadata/test_copy", "test_no_eviction_takes_what_is_being_copied"), MODEL),
    ),
    Mutant(
        "copy-outlives-its-value",
        "A value that ends leaves its copy under way: the answer commits it into whatever is there then.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "    assert(object.is_visible());\n    abandon_copy_of(ref, effects);\n",
                "    assert(object.is_visible());\n",
            ),
        ),
        (test("metadata/test_copy", "test_a_value_that_ends_takes_its_copy_along"), MODEL),
    ),
    Mutant(
        "copy-answered-by-anyone",
        "Any node's answer counts for a copy.",
        (
            Edit(
                "native/metadata/copy_verbs.cc",
                "    if (copy == nullptr || segments_.at(copy->target.segment).owner != node) return;",
                "    if (copy == nullptr || node == 0) return;",
            ),
        ),
        (test("metadata/test_copy", "test_another_nodes_answer_is_not_believed"),),
    ),
    Mutant(
        "copies-without-a-deadline",
        "A copy that nobody answers for is waited for for ever.",
        (Edit("native/metadata/expiry.cc", "    expire_copies(effects);\n", ""),),
        (test("metadata/test_copy", "test_a_copy_without_an_answer_ends_at_its_deadline"),),
    ),
    Mutant(
        "unsettled-copy-called-settled",
        "settled_id looks at unfinished puts only.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (copies_.size() > 0) settled = std::min(settled, copies_.all().front().target.replica - 1);\n",
                "",
            ),
        ),
        (test("metadata/test_copy", "test_a_lost_replica_is_copied_to_a_node_that_has_none"), MODEL),
    ),
    Mutant(
        "full-repair-queue-forgets",
        "What finds the line for repair full is never looked for again.",
        (Edit("native/metadata/repair.cc", "        is_search_due_ = true;\n    } else {", "    } else {"),),
        (test("metadata/test_copy", "test_what_the_queue_had_no_room_for_is_found_by_searching"),),
    ),
    Mutant(
        "draining-segment-takes-values",
        "Values are still placed on a segment whose node is about to leave.",
        (
            Edit(
                "native/metadata/segments.cc",
                "        const bool takes = slots_[index].is_reported && !slots_[index].is_draining;",
                "        const bool takes = slots_[index].is_reported;",
            ),
        ),
        (test("metadata/test_copy", "test_nothing_is_placed_on_a_leaving_node"),),
    ),
    Mutant(
        "coldest-handed-over-first",
        "A leaving node's values move in the order in which they would be evicted.",
        (
            Edit(
                "native/metadata/machine.h",
                "{ return heat < other.heat; }",
                "{ return heat > other.heat; }",
            ),
        ),
        (test("metadata/test_copy", "test_the_hottest_values_move_first"),),
    ),
    Mutant(
        "copy-of-damaged-bytes",
        "A node seals what it fetched without comparing the checksum.",
        (
            Edit(
                "native/node/copier.cc",
                "        if (has_checksum_ && checksum_ != expected_) return Status::kChecksumMismatch;\n",
                "",
            ),
        ),
        (native("copy_test", "bytes_that_do_not_match_their_checksum_are_not_sealed"),),
    ),
    Mutant(
        "copy-of-another-value",
        "A node copies whatever value its source answers with.",
        (Edit("native/node/copier.cc", "parsed->put_id != task_.put_id || ", ""),),
        (native("copy_test", "another_value_than_was_ordered_is_not_copied"),),
    ),
    Mutant(
        "left-node-serves-on",
        "A node that unmounted still begins reads, of values that may be removed by now.",
        (
            Edit(
                "native/node/control_state.cc",
                "    const std::vector<wire::SegmentId> ids = mounted_ids();\n    give_up_all();\n",
                "    const std::vector<wire::SegmentId> ids = mounted_ids();\n",
            ),
        ),
        (native("copy_test", "a_node_that_stops_serves_until_nothing_is_left_to_hand_over"),),
    ),
]
