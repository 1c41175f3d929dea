"""Bugs of a node: ranges, references, the directory, what is sent and received, whom it obeys."""

from mutants.planted import Edit, Mutant, drawn, native, test

DIRECTORY = drawn("node/test_directory", "TestDirectoryBesideAModel")
ALLOCATOR = drawn("node/test_range_allocator", "TestAllocatorBesideModel")

MUTANTS = [
    # -- the range allocator
    Mutant(
        "no-coalescing-to-the-left",
        "A freed range is joined with its free right neighbour only, so that memory falls to pieces.",
        (
            Edit(
                "native/node/core/range_allocator.cc",
                "    if (left != kNone && is_free(record_at(left))) {",
                "    if (left == kNone + 1 && is_free(record_at(left))) {",
            ),
        ),
        (ALLOCATOR,),
    ),
    Mutant(
        "ranges-overlap",
        "What is left over of a range starts one unit before its end.",
        (
            Edit(
                "native/node/core/range_allocator.cc",
                "    record_at(rest) = Record{.start = record.start + units,",
                "    record_at(rest) = Record{.start = record.start + units - 1,",
            ),
        ),
        (ALLOCATOR, DIRECTORY),
    ),
    Mutant(
        "range-one-byte-short",
        "A size is rounded down to whole units, so that a value's tail lies in its neighbour's range.",
        (
            Edit(
                "native/node/core/range_allocator.cc",
                "    return ((bytes - 1) >> unit_shift_) + 1;",
                "    return std::max<uint64_t>(1, bytes >> unit_shift_);",
            ),
        ),
        (ALLOCATOR, DIRECTORY),
    ),
    # -- the directory
    Mutant(
        "retire-frees-what-is-read",
        "A retire gives the range back at once although readers hold references on it.",
        (
            Edit(
                "native/node/core/directory.cc",
                "            if (entry.references == 0) {\n                release(entry, false);",
                "            if (true) {\n                release(entry, false);",
            ),
            Edit(
                "native/node/core/directory.cc",
                "    assert(entry.references == 0);\n    leave(entry);",
                "    leave(entry);",
            ),
            Edit(
                "native/node/core/directory.cc",
                "    shard_of(entry.replica).erase(wire::ReplicaId{entry.replica});",
                "    if (entry.references == 0) shard_of(entry.replica).erase(wire::ReplicaId{entry.replica});",
            ),
        ),
        (
            test(
                "node/test_directory",
                "test_reader_outlives_the_retire_and_its_range_is_reported_freed_afterwards",
            ),
            DIRECTORY,
            native(
                "node_data_test",
                "a_slow_reader_of_a_retired_value_gets_its_bytes_and_the_range_returns_afterwards",
            ),
        ),
    ),
    Mutant(
        "retire-frees-what-is-received",
        "A retire gives the range of a write under way back while the socket still writes into it.",
        (
            Edit(
                "native/node/core/directory.cc",
                "        case State::kReceiving:\n            leave(entry);\n            enter(entry, State::kCancelled);\n"
                "            return false;",
                "        case State::kReceiving:\n            segments_[entry.segment].ranges.free(entry.range);\n"
                "            entry.range = *segments_[entry.segment].ranges.allocate(0);\n            leave(entry);\n"
                "            enter(entry, State::kCancelled);\n            return false;",
            ),
        ),
        (DIRECTORY,),
    ),
    Mutant(
        "digest-not-checked",
        "A read is served by its replica id alone, whatever key it is for.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (entry->digest != digest) {",
                "    if (digest == 0) {",
            ),
        ),
        (
            DIRECTORY,
            native("node_data_test", "gone_and_foreign_digests_leave_the_rest_of_the_batch_alone"),
        ),
    ),
    Mutant(
        "retired-id-is-written-again",
        "A late write of a retired replica is accepted: a value that nobody can end.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    return replica <= ended_floor_ || retired_.contains(replica);",
                "    return replica <= ended_floor_;",
            ),
        ),
        (test("node/test_directory", "test_write_of_a_replica_retired_early_is_refused"), DIRECTORY),
    ),
    Mutant(
        "forgotten-retired-id-is-written-again",
        "An id that was pushed out of the memory of retired ids may be written again.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    ended_floor_ = std::max(ended_floor_, retired_order_.front());\n    retired_.erase",
                "    retired_.erase",
            ),
        ),
        (test("node/test_directory", "test_ids_up_to_a_forgotten_one_are_refused_and_higher_ones_are_not"),),
    ),
    Mutant(
        "sealed-id-is-called-sealed-for-any-value",
        "A write of a sealed id is answered SEALED though it brings another value.",
        (
            Edit(
                "native/node/core/directory.cc",
                "        return refuse(sealed && same ? wire::Status::kSealed : wire::Status::kStaleGrant);",
                "        return refuse(sealed ? wire::Status::kSealed : wire::Status::kStaleGrant);",
            ),
        ),
        (test("node/test_directory", "test_sealed_id_with_another_value_is_not_called_sealed"), DIRECTORY),
    ),
    Mutant(
        "sealed-id-is-overwritten",
        "A write of an id that is sealed is granted that value's own range.",
        (
            Edit(
                "native/node/core/directory.cc",
                "        return refuse(sealed && same ? wire::Status::kSealed : wire::Status::kStaleGrant);",
                "        if (sealed && same) {\n"
                "            leave(*find(item.replica));\n"
                "            enter(*find(item.replica), State::kReceiving);\n"
                "            return {wire::Status::kOk, held->segment, held->range.offset};\n"
                "        }\n"
                "        return refuse(wire::Status::kStaleGrant);",
            ),
        ),
        (DIRECTORY,),
    ),
    Mutant(
        "unfinished-write-is-readable",
        "A replica that is being received is served to readers.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (entry == nullptr || entry->state != State::kSealed || !is_current(*entry)) {",
                "    if (entry == nullptr || entry->state > State::kSealed || !is_current(*entry)) {",
            ),
        ),
        (DIRECTORY,),
    ),
    Mutant(
        "write-of-an-older-reign",
        "A write under an older master's grant is accepted.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (!index || epoch < epoch_ || has_ended(item.replica)) return",
                "    if (!index || has_ended(item.replica)) return",
            ),
        ),
        (DIRECTORY, native("node_data_test", "grants_of_another_reign_or_segment_are_refused")),
    ),
    Mutant(
        "ids-of-an-older-reign",
        "After a change of reign the ids of the older one may still be written.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    ended_floor_ = std::max(ended_floor_, wire::make_id(epoch, 0) - 1);\n",
                "",
            ),
        ),
        (test("node/test_directory", "test_grant_of_an_older_reign_is_refused_after_adopt"), DIRECTORY),
    ),
    Mutant(
        "overtaken-write-is-sealed",
        "A write that a retire overtook is sealed when its last byte comes.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (entry->state == State::kCancelled || !is_current(*entry)) {",
                "    if (!is_current(*entry)) {",
            ),
        ),
        (
            test(
                "node/test_directory",
                "test_range_of_a_receive_that_a_retire_overtook_is_reported_freed_at_its_end",
            ),
            native(
                "node_data_test", "a_write_overtaken_by_its_retire_is_refused_and_its_range_reported_freed"
            ),
        ),
    ),
    Mutant(
        "freed-is-not-reported",
        "A range whose last reader has left is given back, the master is not told.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (report && is_current(entry)) freed_.push_back(entry.replica);\n",
                "",
            ),
        ),
        (DIRECTORY,),
    ),
    Mutant(
        "fenced-node-serves-reads",
        "A node that has heard no master for client_ttl goes on serving reads.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (fenced_) {\n        ++counts_.fenced_refusals;\n        return {};\n    }",
                "    if (fenced_) ++counts_.fenced_refusals;",
            ),
        ),
        (DIRECTORY, native("node_data_test", "a_node_that_hears_no_master_refuses_reads_and_writes")),
    ),
    # -- bytes in and out
    Mutant(
        "half-a-value-is-sealed",
        "A write whose connection ended amid its payload is sealed like a whole one.",
        (
            Edit(
                "native/node/data_writes.cc",
                "        if (received) connection.send(pending->seal());",
                "        wire::Buffer answer = pending->seal();\n        if (received) connection.send(std::move(answer));",
            ),
        ),
        (native("node_data_test", "a_write_whose_connection_ends_gives_its_range_back"),),
    ),
    Mutant(
        "reference-dropped-before-the-send",
        "A chunk's references are given back when it is queued, not when the kernel has its bytes.",
        (
            Edit(
                "native/node/data_reads.cc",
                "        connection->send(std::move(chunk.frame));",
                "        job->release_until(chunk.items_done);\n        connection->send(std::move(chunk.frame));",
            ),
        ),
        (native("node_data_test", "a_reference_is_held_until_the_last_queued_byte_is_sent"),),
    ),
    Mutant(
        "part-starts-at-zero",
        "A read of a part of a value sends as many bytes from the value's start.",
        (
            Edit(
                "native/node/data_reads.cc",
                "            item.begin = item.position = asked[i].offset;\n"
                "            item.end = item.begin + std::min(asked[i].length, item.view.size - item.begin);",
                "            item.begin = item.position = 0;\n"
                "            item.end = std::min(asked[i].length, item.view.size - asked[i].offset);",
            ),
        ),
        (native("node_data_test", "a_part_of_a_value_is_read_and_what_lies_beyond_it_is_refused"),),
    ),
    Mutant(
        "peer-bytes-never-return",
        "Bytes that were sent to a peer stay counted as in flight, until it is told BUSY for ever.",
        (
            Edit(
                "native/node/data_reads.cc",
                "        admitted_bytes_ -= bytes;\n        peer_->finish(bytes);",
                "        admitted_bytes_ -= bytes;",
            ),
        ),
        (native("node_data_test", "one_peer_in_excess_of_its_bytes_is_told_busy_and_others_are_served"),),
    ),
    # -- whom it obeys
    Mutant(
        "command-of-an-older-reign",
        "A node carries out commands of a master whose reign is over.",
        (
            Edit(
                "native/node/control_state.cc",
                "    if (header.epoch >= epoch_) return false;",
                "    if (header.epoch != 0) return false;",
            ),
        ),
        (
            native("node_control_test", "a_retire_of_an_older_epoch_is_refused"),
            native("copy_test", "a_copy_of_an_older_master_is_refused"),
        ),
    ),
    Mutant(
        "freed-acknowledged-unheard",
        "An answered report acknowledges what was freed after it was sent.",
        (
            Edit(
                "native/node/control_told.cc",
                "        directory.acknowledge_freed(asked.freed_count);",
                "        directory.acknowledge_freed(directory.pending_freed_count());",
            ),
        ),
        (native("node_control_test", "what_is_freed_while_a_report_travels_is_in_the_next_one"),),
    ),
    Mutant(
        "two-masters-of-one-epoch",
        "A node follows a second master of the same epoch although the first was heard just now.",
        (
            Edit(
                "native/node/control_state.cc",
                "    if (holdings_->is_fenced()) return true;\n    why =",
                "    if (!holdings_->is_fenced()) return true;\n    why =",
            ),
        ),
        (
            native(
                "node_control_test",
                "a_new_master_of_the_same_epoch_is_followed_only_after_the_old_one_has_been_silent",
            ),
        ),
    ),
    Mutant(
        "new-life-keeps-its-values",
        "A node whose session the master has ended comes back with what it held.",
        (
            Edit(
                "native/node/control_state.cc",
                "        for (SegmentIndex i = 0; i < segments; ++i) directory.expel(i);\n",
                "",
            ),
        ),
        (
            native(
                "node_control_test",
                "a_node_whose_session_is_unknown_returns_as_a_new_incarnation_without_its_data",
            ),
        ),
    ),
    Mutant(
        "part-of-a-damaged-value",
        "A part of a value is sent without a look at the whole, and its own checksum proves nothing.",
        (
            Edit(
                "native/node/data_reads.cc",
                "        if (is_whole) {\n            item.checksum",
                "        if (is_whole || true) {\n            item.checksum",
            ),
        ),
        (native("node_data_test", "no_part_of_a_damaged_value_is_given_away"),),
    ),
    Mutant(
        "parts-looked-at-without-bound",
        "One request makes a node look at any number of bytes.",
        (
            Edit(
                "native/node/data_reads.cc",
                "        if (cost > left) {",
                "        if (cost > (std::uint64_t{1} << 40)) {",
            ),
        ),
        (native("node_data_test", "a_node_checks_only_so_much_for_one_request"),),
    ),
    # -- memory that clients of this host look at
    Mutant(
        "a-viewer-is-disconnected",
        "A connection ends for what its peer sent although the peer still looks at our memory.",
        (
            Edit(
                "native/net/socket_connection.cc",
                "if (ending_ == Ending::kNow && !peer_closed_ && handler_->is_looked_through()) {",
                "if (ending_ == Ending::kNow && !peer_closed_ && false) {",
            ),
        ),
        (native("node_views_test", "a_connection_with_views_is_only_not_served_any_more"),),
    ),
    Mutant(
        "a-slow-payload-waits-for-its-mark",
        "The few bytes that a slow writer brings lie unread below the receive mark until it passes for stalled.",
        (Edit("native/net/socket_connection.cc", "        is_payload_slow_ = true;\n", ""),),
        (native("net_connection_test", "a_payload_that_comes_in_dribs_is_taken_as_it_comes"),),
    ),
    Mutant(
        "views-of-the-dead-are-kept",
        "The references of a client that ended are never given back.",
        (
            Edit(
                "native/node/data_views.cc",
                "    if (shared_->is_stopping) return;",
                "    if (shared_->is_stopping || !held_.empty()) return;",
            ),
        ),
        (native("node_views_test", "who_ends_gives_all_references_back"),),
    ),
    Mutant(
        "one-close-ends-all-references-on-a-value",
        "An open does not take a reference of its own where the connection has one.",
        (
            Edit(
                "native/node/data_views.cc",
                "        held_.emplace(opened.reference, Held{view.reference, view.size});",
                "        held_.emplace(opened.reference, Held{view.reference, view.size});\n"
                "        if (held_.size() > 1) directory.close(view.reference);",
            ),
        ),
        (native("node_views_test", "a_range_returns_only_when_the_last_reference_is_closed"),),
    ),
    Mutant(
        "lent-memory-can-be-written",
        "The descriptor that clients get gives the right to write.",
        (Edit("native/node/memory.cc", "O_RDONLY | O_CLOEXEC));", "O_RDWR | O_CLOEXEC));"),),
        (native("node_views_test", "what_is_lent_gives_no_right_to_write"),),
    ),
    Mutant(
        "views-without-a-bound",
        "One connection's views may cover all of the memory.",
        (
            Edit(
                "native/node/data_views.cc",
                "view.size > shared_->view_bytes_max - held_bytes_ ||",
                "view.size > shared_->view_bytes_max ||",
            ),
        ),
        (native("node_views_test", "views_of_a_connection_cover_an_eighth_of_the_memory_at_most"),),
    ),
    Mutant(
        "mapped-bytes-are-not-checked",
        "What is copied from a mapping is not compared with its checksum.",
        (
            Edit(
                "native/client/mapped_read.cc",
                "    answer.verdict = {wire::Status::kOk, opened.has_checksum, opened.checksum};",
                "    answer.verdict = {wire::Status::kOk, 0, opened.checksum};",
            ),
        ),
        (test("end_to_end/test_shared_memory", "test_damaged_bytes_are_no_answer_either_way"),),
    ),
    Mutant(
        "refuses-before-its-mount-is-answered",
        "A grant that is faster than the answer to the mount counts as withdrawn.",
        (
            Edit(
                "native/node/core/directory.cc",
                "    if (!index && may_follow && awaits_mount()) return {wire::Status::kBusy};\n",
                "",
            ),
            Edit(
                "native/node/core/directory.cc",
                "    const bool may_follow = epoch >= epoch_ && !has_ended(item.replica);\n",
                "",
            ),
        ),
        (
            test(
                "node/test_directory",
                "test_a_write_that_comes_before_the_answer_to_the_mount_is_told_to_wait",
            ),
            DIRECTORY,
        ),
    ),
]
