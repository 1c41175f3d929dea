"""Bugs of the master's driver: its clock, retire queues, parked calls, connections, and the gRPC door."""

from mutants.planted import Edit, Mutant, native, test

DRIVER = "master_test"

MUTANTS = [
    Mutant(
        "clock-takes-the-whole-step",
        "After a stop the master's clock goes forward by all that passed: everybody's session expires.",
        (
            Edit(
                "native/master/bounded_clock.h",
                "now_ms_.load(std::memory_order_relaxed) + std::min(passed, step_max_ms_);",
                "now_ms_.load(std::memory_order_relaxed) + passed;",
            ),
        ),
        (
            native(DRIVER, "clock_drops_what_exceeds_the_step_for_good"),
            native(DRIVER, "stopped_master_expires_nobody"),
        ),
    ),
    Mutant(
        "retires-lost-with-the-connection",
        "Retire commands that a node had not confirmed when its connection ended are not sent again.",
        (
            Edit(
                "native/master/retire_queues.cc",
                "            pending.insert(pending.end(), id, id + static_cast<std::ptrdiff_t>(run.count));\n",
                "            length_ -= pending.empty() ? run.count : run.count;\n",
            ),
        ),
        (
            native(DRIVER, "unconfirmed_retires_are_repeated_on_a_new_connection"),
            native(DRIVER, "retire_is_sent_again_when_the_node_reconnects"),
        ),
    ),
    Mutant(
        "endless-retire-commands",
        "One retire command carries all that waits, however much.",
        (
            Edit(
                "native/master/retire_queues.cc",
                "std::min(pending.size(), kCommandIdsMax - replicas.size());",
                "pending.size();",
            ),
        ),
        (native(DRIVER, "one_command_carries_a_bounded_number_of_ids"),),
    ),
    Mutant(
        "expelled-node-blocks-a-remove",
        "A remove goes on waiting for the confirmation of a node that was expelled.",
        (
            Edit(
                "native/master/state_driver.cc",
                "                for (const auto replica : queues_.expelled(effect.segment)) {\n"
                "                    replica_lost(replica, effect.segment == unheard, outbox);\n"
                "                }\n",
                "                queues_.expelled(effect.segment);\n",
            ),
        ),
        (native(DRIVER, "unmounted_segment_ends_the_waiting"),),
    ),
    Mutant(
        "parked-put-never-times-out",
        "A put that waits for space is not answered when alloc_wait_ms has passed.",
        (
            Edit(
                "native/master/state_driver.cc",
                "        metadata_.refuse_waiting(call->command, now_ms);\n        finish(call, outbox);\n    }\n"
                "    for (auto at",
                "    }\n    for (auto at",
            ),
        ),
        (native(DRIVER, "parked_put_start_is_refused_after_alloc_wait"),),
    ),
    Mutant(
        "parked-put-not-woken",
        "Space that comes back wakes nobody who waits for it.",
        (
            Edit(
                "native/master/state_driver.cc",
                "        outbox.resumed.push_back(waiting);\n",
                "        waiting->is_running = false;\n",
            ),
        ),
        (native(DRIVER, "parked_put_start_is_granted_when_space_returns"),),
    ),
    Mutant(
        "stop-forgets-parked-calls",
        "A master that stops leaves parked calls without an answer.",
        (
            Edit(
                "native/master/state_driver.cc",
                'if (!call->is_running) refuse(call, Status::kClosed, "the master is stopping", outbox);',
                "if (call->is_running) continue;",
            ),
        ),
        (native(DRIVER, "stop_answers_parked_calls_and_later_ones"),),
        may_hang=True,
    ),
    Mutant(
        "endless-parking",
        "Any number of calls may wait at the master.",
        (
            Edit(
                "native/master/state_driver.cc",
                "    return space_waiters_.size() + confirm_waiters_.size() >= options_.parked_calls_max * times ||\n"
                "           parked_bytes_ >= options_.parked_bytes_max * times;",
                "    return parked_bytes_ >= options_.parked_bytes_max * times;",
            ),
        ),
        (native(DRIVER, "calls_beyond_the_parking_bound_are_busy"),),
    ),
    Mutant(
        "remove-answered-unconfirmed",
        "A remove is answered before the node has confirmed that nobody starts a read any more.",
        (
            Edit(
                "native/master/state_driver_promises.cc",
                "(call.unconfirmed > 0 && !call.command.retired().empty())",
                "(call.unconfirmed > 0 && call.command.retired().empty())",
            ),
        ),
        (
            native(DRIVER, "remove_is_answered_when_the_node_confirmed"),
            native(DRIVER, "revoke_waits_for_the_node_too"),
            native(DRIVER, "upsert_commit_waits_until_the_old_value_is_gone"),
        ),
    ),
    Mutant(
        "repeat-in-progress-runs-beside-it",
        "A request repeated while the first is parked is begun a second time.",
        (
            Edit(
                "native/master/state_driver.cc",
                "        if (found != in_progress_.end()) {\n            Call& first",
                "        if (found != in_progress_.end() && command.sequence() == 0) {\n            Call& first",
            ),
        ),
        (native(DRIVER, "repeat_of_a_request_in_progress_gets_its_answer"),),
    ),
    Mutant(
        "any-connection-is-the-last",
        "A session counts as without a connection when one of several ends.",
        (
            Edit(
                "native/master/state_driver.cc",
                "            if (!links_of_.contains(session)) metadata_.session_detached(session, clock_.now_ms());",
                "            metadata_.session_detached(session, clock_.now_ms());",
            ),
        ),
        (native(DRIVER, "session_lives_on_while_any_of_its_connections_is_open"),),
    ),
    Mutant(
        "node-frees-for-others",
        "What a node calls freed in its answer to a retire is believed, whosever replica it names.",
        (
            Edit(
                "native/master/state_driver.cc",
                "[&](auto id) { return std::binary_search(replicas.begin(), replicas.end(), id); });",
                "[&](auto id) { return id != 0; });",
            ),
        ),
        (native(DRIVER, "node_frees_only_what_the_command_named"),),
    ),
    Mutant(
        "report-frees-for-others",
        "What a node calls freed in a report is believed, whosever replica it names.",
        (
            Edit(
                "native/metadata/session_verbs.cc",
                "        return entry != nullptr && segments_.at(entry->segment).owner == command.prefix.session;",
                "        return entry != nullptr;",
            ),
        ),
        (test("metadata/test_remove", "test_node_reports_freed_only_what_lies_on_its_own_segments"),),
    ),
    Mutant(
        "disobedient-node-is-only-disconnected",
        "A node that leaves a retire command unanswered loses its connection and comes back as before.",
        (
            Edit(
                "native/master/state_driver_links.cc",
                "        metadata_.expel(owner, wire::EventReason::kStalled, now_ms, effects_);\n",
                "",
            ),
        ),
        (native(DRIVER, "node_that_leaves_a_command_unanswered_is_expelled"),),
    ),
    Mutant(
        "clients-may-mount",
        "The lane lets a client's connection mount segments.",
        (
            Edit(
                "native/master/lane_server.cc",
                "    return door == Door::kBoth || door == (role == Role::kNode ? Door::kNodes : Door::kClients);",
                "    return door == Door::kBoth || door == Door::kNodes ||\n"
                "           door == (role == Role::kNode ? Door::kNodes : Door::kClients);",
            ),
        ),
        (test("master/test_lane", "test_verbs_of_the_other_role_are_refused_and_the_connection_lives"),),
    ),
    # -- the gRPC door
    Mutant(
        "grpc-forgets-the-tenant",
        "A session opened over gRPC belongs to the nameless tenant.",
        (
            Edit(
                "master/mooncake_master/servicer.py",
                '_uuid("process_uuid", request.process_uuid), request.name, request.host_id, request.tenant',
                '_uuid("process_uuid", request.process_uuid), request.name, request.host_id, ""',
            ),
        ),
        (test("master/test_both_doors", "test_tenants_do_not_see_each_other"),),
    ),
    Mutant(
        "grpc-forgets-avoided-segments",
        "A gRPC client's unreachable segments do not reach the state machine.",
        (
            Edit(
                "master/mooncake_master/servicer.py",
                "        flags=REQUEST_WITHOUT_HOLD if request.without_hold else 0,\n"
                "        avoid=list(request.avoid_segments),",
                "        flags=REQUEST_WITHOUT_HOLD if request.without_hold else 0,",
            ),
        ),
        (test("master/test_both_doors", "test_replicas_on_avoided_segments_count_as_absent"),),
    ),
    Mutant(
        "grpc-upsert-is-a-put",
        "The upsert flag of a gRPC put_start is dropped.",
        (
            Edit(
                "master/mooncake_master/servicer.py",
                "            | PUT_UPSERT * request.upsert\n",
                "",
            ),
        ),
        (test("master/test_both_doors", "test_an_upsert_replaces_the_value"),),
    ),
    Mutant(
        "grpc-repeats-run-twice",
        "The gRPC door gives each remove a sequence of its own.",
        (
            Edit(
                "master/mooncake_master/servicer.py",
                "            sequence=request.sequence,\n            flags=REQUEST_FORCE * request.force |",
                '            sequence=request.sequence + (__import__("time").monotonic_ns() & 0xFFFFFF),\n'
                "            flags=REQUEST_FORCE * request.force |",
            ),
        ),
        (test("master/test_both_doors", "test_a_repeated_remove_has_the_effect_of_one"),),
    ),
]
