"""Bugs of the state machine: puts, leases, accounts, tenants, time."""

from mutants.planted import Edit, Mutant, drawn, test

MODEL = drawn("metadata/test_model", "TestModel")

MUTANTS = [
    # -- puts
    Mutant(
        "put-end-ignores-put-id",
        "A put_end whose put is over ends whatever unfinished put is oldest instead of nothing.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "    const PutIndex index = puts_.find(put_id);\n    if (index == 0) return wire::Status::kStaleGrant;",
                "    const PutIndex named = puts_.find(put_id);\n"
                "    const PutIndex index = named != 0 ? named : puts_.oldest();\n"
                "    if (index == 0) return wire::Status::kStaleGrant;",
            ),
        ),
        (test("metadata/test_put", "test_unfinished_put_is_replaced_after_the_discard_timeout"), MODEL),
    ),
    Mutant(
        "late-put-end-wins",
        "A put_start that takes an abandoned put's place leaves it in the table: its late put_end replaces the newer value.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "            drop_put(put, ReplicaEvent::kRevoked, effects, nullptr);\n            if (!stays) ref = 0;",
                "            if (stays) return wire::Status::kOk;",
            ),
            Edit(
                "native/metadata/put_verbs.cc",
                "const bool superseded = object.is_visible() && object.put_id > put.put_id;",
                "const bool superseded = false;",
            ),
        ),
        (test("metadata/test_put", "test_unfinished_put_is_replaced_after_the_discard_timeout"), MODEL),
    ),
    Mutant(
        "put-end-of-any-session",
        "put_end does not ask whose put it ends.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "    if (put.session != command.prefix.session) return wire::Status::kIllegalClient;\n",
                "",
            ),
        ),
        (test("metadata/test_put", "test_only_the_owner_ends_or_revokes_a_put"), MODEL),
    ),
    Mutant(
        "commit-without-a-written-replica",
        "put_end counts a replica as written whatever its result says.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        return says(one, wire::Status::kOk) || says(one, wire::Status::kSealed);",
                "        return !results.empty() || says(one, wire::Status::kSealed);",
            ),
        ),
        (
            test("metadata/test_put", "test_one_written_replica_commits_and_failed_ones_retire"),
            MODEL,
        ),
    ),
    Mutant(
        "upsert-forgets-the-old-value",
        "An upsert's commit writes the new value over the record without retiring the old replicas.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        end_value(ref, ReplicaEvent::kSuperseded, effects, &command.retired);",
                "        clear_value(object);\n        --visible_count_;",
            ),
        ),
        (test("metadata/test_put", "test_upsert_shows_the_old_value_until_the_new_one_is_written"), MODEL),
    ),
    Mutant(
        "put-of-a-dead-session-blocks-its-key",
        "Only the discard timeout, not the end of its session, lets another client take a put's place.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "    return sessions_.find(put.session) == nullptr ||\n"
                "           now_ms_ - put.started_ms >= options_.put_start_discard_ms;",
                "    return now_ms_ - put.started_ms >= options_.put_start_discard_ms;",
            ),
        ),
        (
            test(
                "metadata/test_put", "test_put_of_a_session_that_is_ending_is_replaced_before_its_turn_comes"
            ),
        ),
    ),
    Mutant(
        "discard-a-millisecond-late",
        "An abandoned put may be replaced only after its timeout, not at it.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "           now_ms_ - put.started_ms >= options_.put_start_discard_ms;",
                "           now_ms_ - put.started_ms > options_.put_start_discard_ms;",
            ),
        ),
        (test("metadata/test_put", "test_unfinished_put_is_replaced_after_the_discard_timeout"),),
    ),
    Mutant(
        "promise-kept-by-a-retried-put",
        "A put that waited for room and is tried again keeps its promise of bytes beside the grant.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "    release_promise(waiting.promise);\n    waiting.promise = 0;\n    const auto answer",
                "    const auto answer",
            ),
        ),
        (test("metadata/test_eviction", "test_promise_of_a_put_that_waited_ends_with_its_grant"),),
    ),
    Mutant(
        "promise-kept-by-a-refused-put",
        "A put that is refused after its wait leaves its promise of bytes behind.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        if (waiting.index == kAnsweredIndex) continue;\n        release_promise(waiting.promise);",
                "        if (waiting.index == kAnsweredIndex) continue;",
            ),
        ),
        (test("metadata/test_eviction", "test_promise_of_a_put_that_gave_up_ends_with_its_refusal"), MODEL),
    ),
    # -- replays
    Mutant(
        "repeated-sequence-runs-twice",
        "A request whose sequence was answered before is carried out again.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (const auto* answer = session->replays.find(sequence)) {",
                "    if (const auto* answer = session->replays.find(sequence); answer != nullptr && !answer->done) {",
            ),
        ),
        (test("metadata/test_put", "test_repeated_put_start_gets_the_same_grant_and_charges_once"), MODEL),
    ),
    Mutant(
        "forgotten-sequence-runs-again",
        "A sequence that left the replay window counts as new.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (session->replays.is_stale(sequence)) {",
                "    if (sequence == ~std::uint64_t{0}) {",
            ),
        ),
        (test("metadata/test_put", "test_sequence_that_left_the_window_is_refused"),),
    ),
    Mutant(
        "window-forgets-what-is-under-way",
        "The replay window drops its lowest sequence although that request is still on its way.",
        (
            Edit(
                "native/metadata/sessions.cc",
                "        if (!lowest->second.done || lowest->first == sequence) {",
                "        if (lowest->first == sequence) {",
            ),
        ),
        (test("metadata/test_put", "test_request_under_way_is_not_forgotten_by_the_replay_window"),),
    ),
    # -- reads
    Mutant(
        "reads-look-into-the-first-tenant",
        "exists, lookup and match_prefix use tenant 0 instead of the session's.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    }\n    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;\n    bool missed",
                "    }\n    const std::uint32_t tenant = 0;\n    bool missed",
            ),
        ),
        (test("metadata/test_read", "test_tenants_share_segments_and_no_keys"), MODEL),
    ),
    Mutant(
        "lookup-leases-an-unfinished-put",
        "lookup does not ask whether the value is visible: it leases a record that only has a put.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    } else if (!table_.object(ref).is_visible()) {",
                "    } else if (!table_.object(ref).is_visible() && command.verb != wire::Verb::kLookup) {",
            ),
        ),
        (test("metadata/test_put", "test_put_is_visible_at_its_end_and_not_before"), MODEL),
    ),
    Mutant(
        "unfinished-put-exists",
        "exists answers OK for a key whose put is not finished.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    } else if (!table_.object(ref).is_visible()) {\n        status = wire::Status::kNotReady;",
                "    } else if (!table_.object(ref).is_visible()) {\n"
                "        if (command.verb != wire::Verb::kExists) status = wire::Status::kNotReady;",
            ),
        ),
        (test("metadata/test_put", "test_put_is_visible_at_its_end_and_not_before"), MODEL),
    ),
    Mutant(
        "match-prefix-counts-past-a-miss",
        "match_prefix goes on after the first miss and counts what comes behind it.",
        (Edit("native/metadata/read_verbs.cc", "        return !missed;\n", "        return true;\n"),),
        (test("metadata/test_read", "test_match_prefix_stops_at_the_first_miss"), MODEL),
    ),
    Mutant(
        "statuses-in-reverse",
        "A batch's statuses are gathered from the front: they come in the reverse order of its keys.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    if (command.verb != wire::Verb::kMatchPrefix) command.statuses.push_back(status);",
                "    if (command.verb != wire::Verb::kMatchPrefix)\n"
                "        command.statuses.insert(command.statuses.begin(), status);",
            ),
        ),
        (test("master/test_both_doors", "test_answers_are_positional_and_a_bad_key_shifts_nothing"), MODEL),
    ),
    Mutant(
        "lookup-leaves-recency",
        "lookup grants a lease but does not count as an access.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "command.verb != wire::Verb::kRelease && command.verb != wire::Verb::kWhy &&",
                "command.verb != wire::Verb::kRelease && command.verb != wire::Verb::kLookup &&",
            ),
        ),
        (test("metadata/test_eviction", "test_lookup_makes_a_value_the_youngest_also_after_its_lease"),),
    ),
    Mutant(
        "one-release-ends-all-leases",
        "The first reader who gives its lease back ends those of the others.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    if (object.lease_count == 0 || --object.lease_count > 0) return;",
                "    if (object.lease_count == 0) return;\n    object.lease_count = 0;",
            ),
        ),
        (test("metadata/test_read", "test_lease_ends_with_its_last_reader"),),
    ),
    Mutant(
        "released-stays-set-aside",
        "A value that was set aside for its lease is not put back in line when the lease is given back.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    if (object.kept_until_ms() > now_ms_) return;\n    for",
                "    if (now_ms_ > 0) return;\n    for",
            ),
        ),
        (
            test(
                "metadata/test_eviction",
                "test_released_goes_at_its_old_place_also_when_it_was_passed_over_before",
            ),
        ),
    ),
    # -- removal
    Mutant(
        "remove-looks-into-the-first-tenant",
        "remove uses tenant 0 instead of the session's.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;",
                "const std::uint32_t tenant = 0;",
            ),
        ),
        (test("metadata/test_remove", "test_same_key_of_another_tenant_stays"), MODEL),
    ),
    Mutant(
        "removed-key-comes-back",
        "A forced remove answers OK for a key with an unfinished put and leaves the put, which then commits.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "        drop_put(puts_.find_record(ref), ReplicaEvent::kRevoked, effects, &command.retired);\n",
                "",
            ),
        ),
        (test("metadata/test_remove", "test_force_revokes_an_unfinished_put"), MODEL),
    ),
    Mutant(
        "remove-ignores-the-lease",
        "remove without force takes a value that a reader has leased.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "    if (!force && object.is_leased(now_ms_)) return wire::Status::kObjectHasLease;\n",
                "",
            ),
        ),
        (test("metadata/test_remove", "test_leased_value_is_removed_only_by_force"), MODEL),
    ),
    Mutant(
        "remove-names-nothing-retired",
        "remove forgets to name what it retired, so that it is answered before the nodes have confirmed.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "        if (retires && retired != nullptr) retired->push_back(one.replica);\n",
                "",
            ),
        ),
        (test("metadata/test_remove", "test_remove_names_what_retires_and_charges_until_freed"), MODEL),
    ),
    Mutant(
        "lookup-of-a-lost-node",
        "A read of a record does not drop the replicas whose segment has left the pool.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "    if (segments_.expelled_count() > 0 && !drop_expelled_replicas(ref, effects)) return false;\n",
                "",
            ),
        ),
        (
            test(
                "metadata/test_liveness", "test_values_of_an_expelled_segment_vanish_at_once_and_others_stay"
            ),
            MODEL,
        ),
    ),
    Mutant(
        "value-outlives-its-ttl",
        "A value past its TTL is readable until the next tick.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "    if (until == 0 || until > now_ms_) return true;",
                "    if (until == 0 || until >= now_ms_) return true;",
            ),
        ),
        (test("metadata/test_read", "test_value_past_its_ttl_is_not_read_before_the_tick_either"), MODEL),
    ),
    # -- accounts
    Mutant(
        "revoke-forgets-its-bytes",
        "put_revoke drops the put without ending its replicas: their bytes stay charged, the node is told nothing.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        const bool retires = end_replica(replica, ReplicaStatus::kUnfinished, event, subject, effects);",
                "        if (event == ReplicaEvent::kRevoked) continue;\n"
                "        const bool retires = end_replica(replica, ReplicaStatus::kUnfinished, event, subject, effects);",
            ),
        ),
        (test("metadata/test_put", "test_revoke_is_idempotent_and_frees_the_key"), MODEL),
    ),
    Mutant(
        "freed-forgets-its-bytes",
        "A replica that the node reports freed is forgotten, its bytes are not given back.",
        (
            Edit(
                "native/metadata/segments.cc",
                "        segment.bytes[left] -= bytes;",
                "        if (from != ReplicaStatus::kRetiring) segment.bytes[left] -= bytes;",
            ),
        ),
        (test("metadata/test_remove", "test_remove_names_what_retires_and_charges_until_freed"), MODEL),
    ),
    Mutant(
        "totals-keep-what-left",
        "What the pool uses, kept as replicas change, does not go down: eviction never ends.",
        (
            Edit(
                "native/metadata/segments.cc",
                "    dram_totals_.used_bytes += segment.used_bytes() - used;",
                "    if (segment.used_bytes() > used) dram_totals_.used_bytes += segment.used_bytes() - used;",
            ),
        ),
        (test("metadata/test_remove", "test_remove_names_what_retires_and_charges_until_freed"), MODEL),
    ),
    Mutant(
        "growing-table-gives-its-slots-back-too-soon",
        "The first shard that grows out of a piece of slots takes it from all the others.",
        (
            Edit(
                "native/metadata/key_table.cc",
                "    if (--left.shard_count > 0) return;",
                "    --left.shard_count;",
            ),
        ),
        (test("metadata/test_scale", "test_hundred_thousand_keys_come_and_go_with_exact_accounts"),),
    ),
    Mutant(
        "expiry-leaves-the-range",
        "A value whose TTL ends vanishes from the index without its replicas being retired.",
        (
            Edit(
                "native/metadata/replica_status.h",
                "ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kExpired, ReplicaStatus::kRetiring},",
                "ReplicaTransition{ReplicaStatus::kLive, ReplicaEvent::kExpired, ReplicaStatus::kNone},",
            ),
        ),
        (test("metadata/test_read", "test_value_is_gone_when_its_ttl_ends"), MODEL),
    ),
    # -- time, sessions and segments
    Mutant(
        "clock-goes-back",
        "A reading below the last one sets the clock back.",
        (
            Edit(
                "native/metadata/machine.cc",
                "    if (now_ms > now_ms_) now_ms_ = now_ms;",
                "    now_ms_ = now_ms;",
            ),
        ),
        (test("metadata/test_liveness", "test_clock_that_goes_back_expires_nothing_twice"),),
    ),
    Mutant(
        "heartbeat-is-not-heard",
        "A client's heartbeat is answered, its session expires all the same.",
        (
            Edit(
                "native/metadata/session_verbs.cc",
                "    sessions_.find(command.prefix.session)->heard_ms = now_ms_;\n    hear_of_peers(",
                "    hear_of_peers(",
            ),
        ),
        (test("metadata/test_liveness", "test_heartbeat_moves_the_expiry"), MODEL),
    ),
    Mutant(
        "grace-ignores-the-reconnect",
        "A session that had lost its connection loses its puts at the end of the grace although it is back.",
        (
            Edit(
                "native/metadata/expiry.cc",
                "            return session != nullptr && !session->attached &&\n",
                "            return session != nullptr &&\n",
            ),
        ),
        (test("metadata/test_liveness", "test_connection_back_within_the_grace_keeps_puts"),),
    ),
    Mutant(
        "soft-pin-for-ever",
        "A soft pin does not end after its time.",
        (
            Edit(
                "native/metadata/expiry.cc",
                "            end_soft_pin(deadline.ref, table_.object(deadline.ref));\n",
                "",
            ),
        ),
        (test("metadata/test_eviction", "test_soft_pin_ends_after_its_time"),),
    ),
    Mutant(
        "forgotten-put-is-never-reaped",
        "A put whose client lives on and forgot it keeps its bytes for ever.",
        (
            Edit(
                "native/metadata/expiry.cc",
                "           now_ms_ - puts_.at(puts_.oldest()).started_ms >= options_.put_start_release_ms) {",
                "           now_ms_ - puts_.at(puts_.oldest()).started_ms >= ~std::uint64_t{0}) {",
            ),
        ),
        (test("metadata/test_put", "test_forgotten_put_is_reaped_after_the_release_timeout"),),
    ),
    Mutant(
        "two-lives-of-one-endpoint",
        "A node that returns under another segment name does not end its earlier life at the same address.",
        (
            Edit(
                "native/metadata/segment_verbs.cc",
                "                           (other.name == segment.name || shares_endpoint(other, segment));",
                "                           other.name == segment.name;",
            ),
        ),
        (test("metadata/test_liveness", "test_endpoint_of_an_earlier_incarnation_expels_it"),),
    ),
    Mutant(
        "old-reign-over-a-newer-node",
        "A master whose node knows a later epoch takes that epoch itself, not the next one.",
        (
            Edit(
                "native/metadata/segment_verbs.cc",
                "    begin_epoch(known_epoch + 1);",
                "    begin_epoch(known_epoch);",
            ),
        ),
        (test("metadata/test_liveness", "test_later_epoch_of_a_mounting_node_is_overtaken"),),
    ),
    Mutant(
        "anybody-unmounts",
        "unmount does not ask whose segment it takes out of the pool.",
        (
            Edit(
                "native/metadata/segment_verbs.cc",
                "        } else if (segments_.at(*index).owner != command.prefix.session) {",
                "        } else if (segments_.at(*index).owner == 0) {",
            ),
        ),
        (test("metadata/test_liveness", "test_only_the_owner_unmounts"),),
    ),
    Mutant(
        "kept-pin-without-end",
        "A soft pin that has ended is kept by the next upsert, and begins anew.",
        (
            Edit(
                "native/metadata/put_verbs.cc",
                "        if (put.keeps_soft_pin && left > 0) {",
                "        if (put.keeps_soft_pin) {",
            ),
        ),
        (test("metadata/test_put", "test_an_upsert_may_keep_what_remains_of_the_soft_pin_before"),),
    ),
    Mutant(
        "where-it-lies-is-a-read",
        "Asking where a value lies leases it, and nobody may remove it for ten seconds.",
        (
            Edit(
                "native/metadata/read_verbs.cc",
                "    if (is_read) lease(object);",
                "    lease(object);",
            ),
        ),
        (test("metadata/test_read", "test_a_lookup_without_hold_leaves_no_trace"),),
    ),
    # -- copies removed alone
    Mutant(
        "removed-copy-comes-back",
        "A repair replaces the copy that was removed alone.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "    object.replicas_wanted = object.replica_count;  // else a repair would bring them back\n",
                "    queue_repair(ref, 0);\n",
            ),
        ),
        (test("metadata/test_remove", "test_one_copy_is_removed_and_stays_so"),),
    ),
    Mutant(
        "removed-copy-is-not-waited-for",
        "A remove of one copy is answered before its node has confirmed it.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "        command.retired.push_back(going[i].replica);\n",
                "",
            ),
        ),
        (test("metadata/test_remove", "test_one_copy_is_removed_and_stays_so"), MODEL),
    ),
    Mutant(
        "copies-of-a-put-are-dropped",
        "A forced remove of one segment's copies gives up a put that is under way.",
        (
            Edit(
                "native/metadata/remove_verbs.cc",
                "if (!force || removes_copies) return wire::Status::kNotReady;",
                "if (!force) return wire::Status::kNotReady;",
            ),
        ),
        (test("metadata/test_remove", "test_copies_of_an_unfinished_put_are_not_removed"),),
    ),
]
