"""Bugs of the client: checksums, order of answers, retries, deadlines, connections, buffers."""

from mutants.planted import Edit, Mutant, native, test

CORE = "client_core_test"
PEERS = "client_peers_test"
LOST = "end_to_end/test_lost_master"
CONTROL = "client/test_control"

MUTANTS = [
    # -- memory of a batch
    Mutant(
        "objects-are-overwritten-by-bytes",
        "An array of Python objects is taken for a target.",
        (Edit("native/bindings/client_arguments.cc", "std::strchr(buffer.format, 'O') != nullptr", "false"),),
        (test("client/test_packed_memory", "test_targets_that_cannot_be_filled_are_named"),),
    ),
    Mutant(
        "packed-values-may-be-read-into",
        "Memory that was packed to be put from is written by a read.",
        (
            Edit(
                "native/bindings/client_arguments.cc",
                "if (!packed.is_writable()) raise_type",
                "if (false) raise_type",
            ),
        ),
        (test("client/test_packed_memory", "test_packed_values_are_no_targets"),),
    ),
    # -- what arrives
    Mutant(
        "bytes-before-the-first-receive-are-not-told",
        "What came together with a frame is not checksummed.",
        (
            Edit(
                "native/net/client_socket.cc",
                "if (received && drained > 0) received(drained);",
                "",
            ),
        ),
        (native("net_client_test", "received_bytes_are_told_as_they_come_and_never_more_than_stay_hot"),),
    ),
    Mutant(
        "a-pool-gives-a-connection-with-bytes-on-it",
        "Bytes that nobody took are the beginning of the next answer.",
        (
            Edit(
                "native/net/connection_pool.cc",
                "is_recent ? last.socket->is_reusable() : last.socket->is_idle_healthy()",
                "is_recent || last.socket->is_idle_healthy()",
            ),
        ),
        (
            native(
                "net_client_test",
                "a_pool_gives_what_was_used_just_now_without_a_look_and_never_what_holds_bytes",
            ),
        ),
    ),
    # -- a lost master
    Mutant(
        "each-call-waits-for-a-lost-master",
        "Calls wait their whole time for a master however long all have waited already.",
        (
            Edit(
                "native/client/driver.cc",
                "now_ms < lost_at_ms + options_.rpc_timeout_ms) return 0;",
                "now_ms < lost_at_ms + 1000 * options_.rpc_timeout_ms) return 0;",
            ),
        ),
        (test(LOST, "test_calls_stop_waiting_for_a_master_that_all_have_waited_for"),),
    ),
    Mutant(
        "a-call-gives-up-without-an-attempt",
        "A call that finds the master lost does not wait for the attempt that would find it.",
        (
            Edit(
                "native/client/call.cc",
                "driver_.is_master_silent() ? 1 : driver_.want_attempt();",
                "driver_.is_master_silent() || lost_ms != 0 ? 1 : driver_.want_attempt();",
            ),
        ),
        (test(LOST, "test_calls_stop_waiting_for_a_master_that_all_have_waited_for"),),
    ),
    # -- the door to the master
    Mutant(
        "grpc-alone-dials-the-lane",
        "control=grpc tries the lane first, as auto does.",
        (
            Edit(
                "native/client/keeper.cc",
                "if (options.control != Control::kGrpc) {",
                "if (options.control != Control::kLane) {",
            ),
        ),
        (test(CONTROL, "test_grpc_alone_never_dials_the_lane"),),
    ),
    Mutant(
        "grpc-status-cut-to-16-bits",
        "A status that a frame has no room for is cut, and may become OK.",
        (
            Edit(
                "client/mooncake_client/grpc_verbs.py",
                "    if not _STATUS_MIN <= number <= 0:\n",
                "    if not -(1 << 31) <= number < 1 << 31:\n",
            ),
        ),
        (test(CONTROL, "test_a_master_that_answers_what_cannot_be_is_an_error_in_time"),),
    ),
    Mutant(
        "grpc-lost-answer-is-a-refusal",
        "A master that is gone answers the call with an error instead of being asked again.",
        (
            Edit(
                "client/mooncake_client/grpc_bridge.py",
                "        if name in _LOST and not is_told:\n",
                "        if name in () and not is_told:\n",
            ),
        ),
        (
            test(
                "end_to_end/test_master_restart", "test_a_call_made_without_a_master_is_answered_by_the_next"
            ),
        ),
    ),
    # -- reads
    Mutant(
        "checksum-not-verified",
        "The reader computes a value's checksum and does not compare it.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "options_.checksums && entry.has_checksum && !checksum_matches(index)) {",
                "options_.checksums && entry.has_checksum && checksum_matches(index) && index > results_.size()) {",
            ),
        ),
        (
            native(CORE, "wrong_bytes_are_never_an_answer"),
            native(CORE, "another_keys_value_is_never_an_answer"),
            native(CORE, "an_older_value_of_the_key_is_never_an_answer"),
        ),
    ),
    Mutant(
        "stripes-joined-as-they-came",
        "The checksums of a value's parts are joined in the order in which they arrived.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "    std::sort(stripes_.begin(), stripes_.end(),\n"
                "              [](const Stripe& a, const Stripe& b) { return a.offset < b.offset; });",
                "    std::sort(stripes_.begin(), stripes_.end(),\n"
                "              [](const Stripe& a, const Stripe& b) { return a.offset > b.offset; });",
            ),
        ),
        (native(CORE, "large_values_are_read_over_two_connections"),),
    ),
    Mutant(
        "partial-value-is-a-hit",
        "A value of which the node sent less than its size counts as whole.",
        (
            Edit(
                "native/client/core/read_assembly.cc",
                "const bool is_whole = is_last && received_ + piece.length == parts_[next_].length;",
                "const bool is_whole = is_last;",
            ),
        ),
        (native(CORE, "a_short_value_is_not_an_answer_even_when_the_verdict_says_so"),),
    ),
    Mutant(
        "reply-longer-than-asked",
        "A node may send more of a value than was asked for: behind the end of the caller's buffer.",
        (
            Edit(
                "native/client/core/read_assembly.cc",
                "        if (piece.length > parts_[next_].length - received_) return false;\n",
                "",
            ),
        ),
        (native(CORE, "a_read_reply_that_exceeds_what_was_asked_is_refused"),),
    ),
    Mutant(
        "target-too-small-is-filled",
        "A value larger than its target is read into it all the same.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "        return fits ? wire::Status::kOk : wire::Status::kBufferOverflow;\n",
                "        return fits || !capacities_.empty() ? wire::Status::kOk : wire::Status::kBufferOverflow;\n",
            ),
        ),
        (native(CORE, "a_target_too_small_is_told_the_size"),),
    ),
    Mutant(
        "gone-is-final",
        "A value that moved between lookup and read is a miss: the master is not asked once more.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "    if (entry.saw_gone && !entry.told_the_same && entry.lookups < kLookupsMax) {",
                "    if (entry.saw_gone && entry.told_the_same) {",
            ),
        ),
        (native(CORE, "gone_everywhere_looks_up_once_more"),),
    ),
    Mutant(
        "second-move-is-final",
        "A value that moves again while it is read is a miss: the master is asked once more, and no further.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "!entry.told_the_same && entry.lookups < kLookupsMax) {",
                "!entry.told_the_same && entry.lookups < 2) {",
            ),
        ),
        (native(CORE, "a_value_that_moves_again_while_it_is_read_is_followed"),),
    ),
    Mutant(
        "first-replica-decides",
        "A replica that is gone ends the read although another one could be asked.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "    if ((entry.tried & all) != all) return;  // plan_reads takes the next one\n",
                "    if ((entry.tried & all) == 0) return;\n",
            ),
        ),
        (native(CORE, "a_gone_replica_fails_over_to_the_next"),),
    ),
    Mutant(
        "leases-are-not-given-back",
        "A read that has ended keeps its leases until they run out.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "    release_leases(now_ms);\n    if (recalled_count_ > 0)",
                "    if (recalled_count_ > 0)",
            ),
        ),
        (native(CORE, "a_read_gives_back_every_lease_it_was_granted"),),
    ),
    # -- batches
    Mutant(
        "answers-shift-at-a-bad-key",
        "A batch's answers are filed by the position in the request, from which invalid keys were left out.",
        (
            Edit(
                "native/client/core/key_batches.cc",
                "statuses_[asked[i]] = (*statuses)[i];",
                "statuses_[slice_.answered + i] = (*statuses)[i];",
            ),
        ),
        (native(CORE, "long_batches_are_cut"),),
    ),
    # -- retries
    Mutant(
        "repeat-with-a-new-sequence",
        "A request whose answer was lost is repeated under a new number: it happens twice.",
        (
            Edit(
                "native/client/core/operation.cc",
                "    if (repeats_++ == 0) {\n",
                "    restamp();\n    if (repeats_++ == 0) {\n",
            ),
        ),
        (
            native(CORE, "a_lost_answer_is_asked_for_again_with_the_same_number"),
            native(CORE, "a_remove_repeated_has_the_effect_of_one"),
        ),
    ),
    Mutant(
        "numbers-restart-in-the-same-session",
        "A session that is found again after a lost connection starts its numbers at 1: old answers come back.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "    session_ = session;\n}",
                "    session_ = session;\n    sequence_ = 0;\n}",
            ),
        ),
        (native(CORE, "a_session_found_again_goes_on_with_its_numbers"),),
    ),
    Mutant(
        "numbers-restart-in-another-session",
        "A new session starts its numbers at 1: wrong when it is the old one of a master that was left and found again.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "    session_ = session;\n}",
                "    if (session.session != session_.session) sequence_ = 0;\n    session_ = session;\n}",
            ),
        ),
        (native(CORE, "a_session_that_comes_back_sees_no_number_twice"),),
    ),
    Mutant(
        "unreachable-outlives-the-process",
        "What a process that died did not answer is held against the one that started at its address since.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "if (before != kNoPeer && --peers_.at(before).segments == 0) forget(before);",
                "if (before != kNoPeer) --peers_.at(before).segments;",
            ),
        ),
        (
            native(PEERS, "a_process_that_started_where_another_died_is_not_avoided"),
            native(PEERS, "nodes_that_come_and_go_by_the_thousand_are_forgotten"),
        ),
    ),
    Mutant(
        "probes-in-no-order",
        "Of more silent peers than are probed at once, the same few are probed again and again.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "std::sort(waiting.begin(), waiting.end());",
                "std::sort(waiting.begin(), waiting.end(), "
                "[](const auto& a, const auto& b) { return a.second < b.second; });",
            ),
        ),
        (native(PEERS, "one_that_answers_again_is_found_among_many_that_do_not"),),
    ),
    Mutant(
        "greeting-is-proof",
        "A probe that is greeted makes the next wait short again, whatever became of requests.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "    found->second.failures = 0;\n    set_reachable(found->second, true);",
                "    found->second.failures = 0;\n    found->second.probe_delay_ms = kProbeDelayMinMs;\n"
                "    set_reachable(found->second, true);",
            ),
        ),
        (native(PEERS, "a_peer_that_only_greets_is_tried_less_and_less_often"),),
    ),
    Mutant(
        "own-queue-blames-the-peer",
        "A call that got no connection of its own client's counts as a failure of the node.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "if (found == peers_.end() || failure == Failure::kNotSent) return;",
                "if (found == peers_.end()) return;",
            ),
        ),
        (native(PEERS, "a_call_that_got_no_connection_of_its_own_client_blames_nobody"),),
    ),
    Mutant(
        "deadline-ignored",
        "An operation does not look at its deadline: without an answer it asks for ever.",
        (
            Edit(
                "native/client/core/operation.cc",
                "    if (now_ms >= deadline_ms_) {",
                "    if (now_ms >= ~std::uint64_t{0}) {",
            ),
        ),
        (native(CORE, "an_answer_that_never_comes_ends_with_the_deadline"),),
    ),
    Mutant(
        "unknown-session-is-an-error",
        "A request that the master answers with SESSION_UNKNOWN fails instead of opening another session.",
        (
            Edit(
                "native/client/core/operation.cc",
                "        case wire::Status::kSessionUnknown:\n        case wire::Status::kStaleEpoch:",
                "        case wire::Status::kStaleEpoch:",
            ),
        ),
        (native(CORE, "an_unknown_session_is_opened_anew_and_the_request_repeated"),),
    ),
    # -- puts
    Mutant(
        "stored-before-the-commit",
        "A put is called stored when its bytes are written, whatever put_end answers: a get of it misses.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "settle(grants_[i], (*statuses)[i], now_ms);",
                "settle(grants_[i], wire::Status::kOk, now_ms);",
            ),
        ),
        (native(CORE, "a_put_is_stored_only_when_its_commit_was"),),
    ),
    Mutant(
        "given-up-put-is-not-revoked",
        "A put that its caller gave up stays unfinished and blocks its key.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "    if (!begun.empty()) cluster_.revoke(begun);\n",
                "",
            ),
        ),
        (native(CORE, "a_put_given_up_is_revoked"),),
    ),
    Mutant(
        "sealed-counts-as-failed",
        "A replica that an earlier attempt had written already counts as not written.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "bool is_written(wire::Status status) { return wire::ok(status) || status == wire::Status::kSealed; }",
                "bool is_written(wire::Status status) { return wire::ok(status); }",
            ),
        ),
        (native(CORE, "a_replica_already_written_counts"),),
    ),
    Mutant(
        "no-range-is-no-space",
        "A put for which a node had no range is refused at once.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "        if (entry.no_ranges == kNoRangesMax) return false;",
                "        if (entry.no_ranges == 0) return false;",
            ),
        ),
        (native(CORE, "no_range_puts_again_as_often_as_the_master_may_evict_more"),),
    ),
    Mutant(
        "not-ready-is-exists",
        "A put of a key that somebody else is putting is answered 'exists' before that put has ended.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "    if (status != wire::Status::kNotReady && status != wire::Status::kBusy &&",
                "    if (status == wire::Status::kNotReady) status = wire::Status::kObjectAlreadyExists;\n"
                "    if (status != wire::Status::kBusy &&",
            ),
        ),
        (native(CORE, "a_put_under_way_elsewhere_is_waited_for"),),
    ),
    # -- connections
    Mutant(
        "old-connection-condemns-the-node",
        "A pooled connection that died of age counts as the node's failure and is not replaced.",
        (
            Edit(
                "native/client/core/put_batch.cc",
                "    if (failure == Failure::kBroken && !write.fresh_connection) {",
                "    if (failure == Failure::kBroken && write.fresh_connection) {",
            ),
        ),
        (native(CORE, "a_connection_that_died_of_age_is_replaced_once"),),
    ),
    Mutant(
        "buffer-written-after-the-call",
        "A call that gives up amid a reply leaves its connection open and puts it back for others.",
        (
            Edit(
                "native/client/transfer.cc",
                "Transfer::~Transfer() { close(); }",
                "Transfer::~Transfer() {\n    if (has_slot_) give_back();\n}",
            ),
        ),
        (test("end_to_end/test_given_up_calls", "test_a_call_that_gave_up_has_closed_its_connection"),),
    ),
    # -- leases of this client's own reads
    Mutant(
        "remove-overtakes-the-releases",
        "A remove is asked while the leases of this client's own, ended reads still wait to be told.",
        (
            Edit(
                "native/client/client.cc",
                "verb == wire::Verb::kRemove && (flags & wire::kRemoveForce) == 0",
                "verb == wire::Verb::kRemove && (flags & wire::kRemoveForce) != 0",
            ),
        ),
        (test("end_to_end/test_store_core", "test_own_reads_that_ended_refuse_no_remove"),),
    ),
    Mutant(
        "taken-is-told",
        "Releases count as told when they set out for the master, not when it has answered.",
        (
            Edit(
                "native/client/core/cluster.cc",
                "    releases_taken_ = releases_;",
                "    releases_told_ = releases_taken_ = releases_;",
            ),
        ),
        (native(CORE, "releases_are_told_at_once_when_a_remove_waits_for_them"),),
    ),
    Mutant(
        "part-outside-its-value",
        "A range that is not inside the value is asked for all the same.",
        (
            Edit(
                "native/client/core/get_batch.cc",
                "    if (range.offset > size || range.length > size - range.offset) return wire::Status::kInvalidParams;\n",
                "",
            ),
        ),
        (native(CORE, "parts_of_values_are_read_alone"),),
    ),
]
