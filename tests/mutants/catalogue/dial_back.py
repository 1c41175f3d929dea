"""Bugs of dialling a node back before its mount counts, and of counting bytes that are no frame."""

from mutants.planted import Edit, Mutant, native, test

DIAL_BACK = "native/master/dial_back.cc"
DRIVER = "native/master/state_driver.cc"
CONNECTION = "native/net/socket_connection.cc"
TEST = "dial_back_test"
GARBAGE = test("master/test_lane", "test_bytes_that_are_no_frame_are_counted_and_end_the_connection")

MUTANTS = [
    Mutant(
        "any-process-answers-for-a-node",
        "An address leads to some other node, and the mount counts: what clients read there is never there.",
        (Edit(DIAL_BACK, "return !process || *process == found;", "return true || *process == found;"),),
        (native(TEST, "an_address_where_another_process_answers_is_not_the_nodes"),),
    ),
    Mutant(
        "endless-dials",
        "Every mount is dialled back at once, however many.",
        (Edit(DIAL_BACK, "} else if (running_ < kDialBacksMax) {", "} else if (true) {"),),
        (
            native(TEST, "mounts_beyond_the_bound_wait_and_too_many_are_told_so"),
            native(TEST, "what_waits_is_answered_when_it_stops"),
        ),
    ),
    Mutant(
        "late-dial-reads-as-unreachable",
        "A mount that waited behind dead ones is dialled after its node has given up on the answer.",
        (Edit(DIAL_BACK, "if (clock_.now_ms() > check->begin_until_ms) {", "if (false) {"),),
        (native(TEST, "one_that_waited_too_long_is_busy_and_not_unreachable"),),
    ),
    Mutant(
        "mount-of-a-closed-connection",
        "A mount is carried out though its connection ended while its node was dialled.",
        (
            Edit(
                DRIVER,
                "if (call->was_held_up && call->link && call->link->is_closed) {",
                "if (call->was_held_up && call->link && false) {",
            ),
        ),
        (native(TEST, "a_mount_whose_connection_ended_meanwhile_is_not_carried_out"),),
    ),
    Mutant(
        "mounted-nodes-are-dialled-again",
        "A node that lost its connection for a moment stays out when one dial of it fails.",
        (
            Edit(
                DRIVER,
                "    if (metadata_.has_mounted(call.command.session(), *mount)) return std::nullopt;\n",
                "",
            ),
        ),
        (native(TEST, "a_node_that_is_mounted_and_asks_again_is_not_dialled_again"),),
    ),
    Mutant(
        "short-garbage-is-not-counted",
        "Bytes that are fewer than a header end their connection and leave no trace.",
        (
            Edit(
                CONNECTION,
                "if (sent_garbage_ || (hello_since_ms_ != 0 && !buffer_.empty())) handler_",
                "if (sent_garbage_) handler_",
            ),
        ),
        (GARBAGE,),
    ),
]
