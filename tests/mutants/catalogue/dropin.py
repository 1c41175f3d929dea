"""Bugs of the drop-in store: codes, the order of answers, pieces and ranges, tensors."""

from mutants.planted import Edit, Mutant, test

FOLDER = "client/mooncake_client/dropin"

MUTANTS = [
    Mutant(
        "dropin-refused-entries-shift-the-others",
        "Answers of a batch are handed out from its start, whatever was refused.",
        (
            Edit(
                f"{FOLDER}/base.py",
                "        spread[index] = answer\n",
                "        spread[indices.index(index)] = answer\n",
            ),
        ),
        (test("dropin/test_buffers", "test_batches_answer_each_key_at_its_index"),),
    ),
    Mutant(
        "dropin-value-that-exists-is-a-failed-put",
        "A put of a key that has a value answers Mooncake's internal -705.",
        (Edit(f"{FOLDER}/codes.py", "    Status.OBJECT_ALREADY_EXISTS: OK,\n", ""),),
        (test("dropin/test_plain_values", "test_put_keeps_the_value_that_is_there"),),
    ),
    Mutant(
        "dropin-pieces-filled-to-their-ends",
        "A value shorter than its pieces is followed by what was in memory before.",
        (
            Edit(
                "native/bindings/client_arguments.cc",
                "const std::size_t length = std::min(piece.iov_len, left);",
                "const std::size_t length = piece.iov_len;",
            ),
        ),
        (test("dropin/test_buffers", "test_spreading_stops_where_the_value_ends"),),
    ),
    Mutant(
        "pieces-are-joined-across-a-gap",
        "The second piece of a value is taken for the rest of the first one.",
        (
            Edit(
                "native/bindings/client_arguments.cc",
                "+ pieces.back().iov_len ==\n                    piece.iov_base) {",
                "!= nullptr) {",
            ),
        ),
        (test("client/test_packed_memory", "test_pieces_make_up_one_value_and_neighbours_are_joined"),),
    ),
    Mutant(
        "dropin-range-may-leave-the-value",
        "A range that begins inside a value and ends outside is read.",
        (
            Edit(
                f"{FOLDER}/pieces.py",
                "offset < 0 or offset + size > value.size()",
                "offset < 0 or offset > value.size()",
            ),
        ),
        (
            test("dropin/test_buffers", "test_ranges_of_values"),
            test("dropin/test_buffers", "test_put_session_is_seen_when_it_ends"),
        ),
    ),
    Mutant(
        "dropin-session-of-two-values",
        "A get session reads each range from whatever the key has then.",
        (
            Edit(
                f"{FOLDER}/pieces.py",
                "                    self._get_sessions[name] = value\n",
                "                    self._get_sessions[name] = _core.BufferHandle(value.size())\n",
            ),
        ),
        (test("dropin/test_buffers", "test_get_session_reads_ranges_of_one_value"),),
    ),
    Mutant(
        "dropin-shard-of-another-division",
        "A shard is read by its key, whatever its header says of ranks.",
        (
            Edit(
                f"{FOLDER}/tp_tensors.py",
                "(axis.rank, axis.count) == (tp_rank, tp_size)",
                "axis.rank == tp_rank",
            ),
        ),
        (test("dropin/test_tensors", "test_shards_of_tensor_parallelism"),),
    ),
    Mutant(
        "dropin-header-of-another-size",
        "A header is believed though its items are not as many bytes.",
        (Edit(f"{FOLDER}/tensor_format.py", "        or header.data_bytes != data_bytes\n", ""),),
        (test("dropin/test_tensors", "test_headers_that_lie_are_refused"),),
    ),
    Mutant(
        "dropin-overlapping-registration",
        "A buffer is registered although an earlier one reaches into it.",
        (
            Edit(
                f"{FOLDER}/buffers.py",
                "self._sizes[self._starts[at - 1]] > start:",
                "self._sizes[self._starts[at - 1]] > start + size:",
            ),
        ),
        (test("dropin/test_buffers", "test_register_sees_every_way_to_overlap"),),
    ),
    Mutant(
        "dropin-unknown-setting-ignored",
        "A misspelt setting takes its default without a word.",
        (
            Edit(
                f"{FOLDER}/mooncake_config.py",
                "            if name in OF_CLIENTS:\n                continue\n",
                "            if name:\n                continue\n",
            ),
        ),
        (test("dropin/test_setup", "test_wrong_setting_is_refused_by_name"),),
    ),
    Mutant(
        "dropin-manifest-names-keys-of-others",
        "A bundle is read and removed by whatever keys its manifest names.",
        (
            Edit(
                f"{FOLDER}/bundles.py",
                "isinstance(key, str) and key.startswith(roots) for key in keys)",
                "isinstance(key, str) for key in keys)",
            ),
        ),
        (test("dropin/test_structured_objects", "test_manifest_that_was_changed_is_not_believed"),),
    ),
    Mutant(
        "dropin-range-ends-with-its-chunk",
        "A range that goes on in the next chunk is cut off.",
        (
            Edit(
                f"{FOLDER}/bundles.py",
                "length - taken, at + 1",
                "0, at + 1",
            ),
        ),
        (test("dropin/test_structured_objects", "test_rows_of_an_array"),),
    ),
    Mutant(
        "dropin-forgotten-lease-is-lent-again-while-it-is-viewed",
        "Memory of a lease that nobody released goes to the next one although somebody looks at it.",
        (
            Edit(
                f"{FOLDER}/buffer_pool.py",
                "            if handle.is_viewed:\n                self._forget",
                "            if handle is None:\n                self._forget",
            ),
        ),
        (test("dropin/test_pool", "test_forgotten_lease_that_is_viewed_is_not_lent_again"),),
    ),
    Mutant(
        "two-lend-one-memory",
        "Two nodes may lend the same part of a file, and write over each other's values.",
        (
            Edit(
                "native/node/memory.cc",
                "    if (::fcntl(fd_, F_OFD_SETLK, &lock) != 0) {",
                "    if (lock.l_len == 0) {",
            ),
        ),
        (test("dropin/test_pool", "test_no_two_lend_the_same_shared_memory"),),
    ),
    Mutant(
        "lent-from-the-start",
        "A part of a file is lent, but it is always the first one.",
        (
            Edit(
                "native/node/memory.cc",
                "MAP_SHARED, fd_, static_cast<off_t>(file.offset));",
                "MAP_SHARED, fd_, 0);",
            ),
        ),
        (test("dropin/test_pool", "test_a_part_of_shared_memory_is_lent"),),
    ),
    Mutant(
        "ranges-of-two-values",
        "Ranges of one key are taken from whatever value each met.",
        (
            Edit(
                f"{FOLDER}/pieces.py",
                "                if len(values) > 1:\n",
                "                if len(values) > len(found):\n",
            ),
        ),
        (test("dropin/test_buffers", "test_ranges_of_a_key_that_is_replaced_meanwhile_are_read_again"),),
    ),
]
