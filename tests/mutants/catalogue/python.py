"""Bugs of the Python that users call: keys, values, answers, errors."""

from mutants.planted import Edit, Mutant, test

MUTANTS = [
    Mutant(
        "int-keys-in-binary",
        "An int key is its bytes instead of its digits: 12 and '12' are two keys.",
        (
            Edit(
                "mooncake_store/keys.py",
                '        encoded = b"%d" % key',
                '        encoded = key.to_bytes((key.bit_length() + 7) // 8 or 1, "big")',
            ),
        ),
        (
            test("store/test_keys", "test_equal_bytes_are_one_key"),
            test("store/test_keys", "test_keys_have_one_byte_form"),
        ),
    ),
    Mutant(
        "key-of-1024-bytes-refused",
        "The longest key that is allowed is refused.",
        (
            Edit(
                "mooncake_store/keys.py",
                "    if not KEY_BYTES_MIN <= len(encoded) <= KEY_BYTES_MAX:",
                "    if not KEY_BYTES_MIN <= len(encoded) < KEY_BYTES_MAX:",
            ),
        ),
        (test("store/test_keys", "test_keys_have_one_byte_form"),),
    ),
    Mutant(
        "block-keys-not-chained",
        "A block's key leaves out what came before it: equal blocks of different prompts are shared.",
        (
            Edit(
                "mooncake_store/keys.py",
                "        previous = digest.digest()\n        keys.append(previous)",
                "        keys.append(digest.digest())",
            ),
        ),
        (test("store/test_keys", "test_block_keys_are_the_golden_ones"),),
    ),
    Mutant(
        "byte-order-lost",
        "An array's dtype is kept by its name, which does not tell the byte order.",
        (
            Edit(
                "client/mooncake_client/values.py",
                "dtype.str if numpy.dtype(dtype.str) == dtype else dtype.name, shape)",
                "dtype.name, shape)",
            ),
        ),
        (test("client/test_values", "test_every_plain_dtype_and_shape_comes_back"),),
    ),
    Mutant(
        "shape-lost",
        "An array comes back flat.",
        (
            Edit(
                "client/mooncake_client/values.py",
                "    return data.view(kind).reshape(shape) if data.size else numpy.empty(shape, dtype=kind)",
                "    return data.view(kind) if data.size else numpy.empty(shape, dtype=kind)",
            ),
        ),
        (
            test("client/test_values", "test_every_plain_dtype_and_shape_comes_back"),
            test("client/test_store", "test_tensors_come_back_with_dtype_and_shape"),
        ),
    ),
    Mutant(
        "array-put-as-it-lies",
        "A sliced or transposed array is put as its memory lies, not as it looks.",
        (
            Edit(
                "client/mooncake_client/values.py",
                "    contiguous = array if array.flags.c_contiguous else numpy.ascontiguousarray(array)",
                "    contiguous = array if array.flags.forc else numpy.ascontiguousarray(array)",
            ),
            Edit(
                "client/mooncake_client/values.py",
                "    return Encoded(contiguous.reshape(-1).view(numpy.uint8), metadata, contiguous)",
                '    return Encoded(contiguous.ravel(order="K").view(numpy.uint8), metadata, contiguous)',
            ),
        ),
        (test("client/test_values", "test_a_fortran_order_and_a_broadcast_array_come_back"),),
    ),
    Mutant(
        "rpc-failure-is-no-outage",
        "A master that does not answer raises a plain StoreError, which nobody retries.",
        (
            Edit(
                "mooncake_store/errors.py",
                '    Status.RPC_FAIL: Meaning(Unavailable, "UNAVAILABLE"),',
                '    Status.RPC_FAIL: Meaning(StoreError, "INTERNAL"),',
            ),
        ),
        (test("client/test_store", "test_a_call_raises_unavailable_when_the_master_is_gone"),),
    ),
    Mutant(
        "checksum-mismatch-raises-not-found",
        "Wrong bytes raise ObjectNotFound.",
        (
            Edit(
                "mooncake_store/errors.py",
                '    Status.CHECKSUM_MISMATCH: Meaning(ChecksumMismatch, "DATA_LOSS"),',
                '    Status.CHECKSUM_MISMATCH: Meaning(ObjectNotFound, "DATA_LOSS"),',
            ),
        ),
        (
            test(
                "store/test_status_and_errors", "test_every_exception_class_is_what_its_default_code_becomes"
            ),
        ),
    ),
    Mutant(
        "wrong-bytes-are-a-miss",
        "A value whose bytes do not match their checksum is answered like a miss, and nobody hears of it.",
        (
            Edit(
                "client/mooncake_client/answers.py",
                "        Status.UNREACHABLE,\n    )",
                "        Status.UNREACHABLE,\n        Status.CHECKSUM_MISMATCH,\n    )",
            ),
        ),
        (test("client/test_answers", "test_misses_are_what_is_not_there_and_nothing_else"),),
    ),
    Mutant(
        "lost-node-raises",
        "A get of a value on a lost node raises instead of missing.",
        (
            Edit(
                "client/mooncake_client/answers.py",
                "        Status.GONE,\n        Status.UNREACHABLE,\n    )",
                "        Status.GONE,\n    )",
            ),
        ),
        (
            test("client/test_answers", "test_misses_are_what_is_not_there_and_nothing_else"),
            test("end_to_end/test_lost_nodes", "test_a_lost_node_costs_misses_and_no_refused_put"),
        ),
    ),
    Mutant(
        "refused-entries-first",
        "In a batch with a bad entry the refused ones come first and shift the others.",
        (
            Edit(
                "client/mooncake_client/answers.py",
                "    return [refused[index] if index in refused else next(rest) for index in range(len(keys))]",
                "    return [*refused.values(), *list(rest)[: len(good)]]",
            ),
        ),
        (test("client/test_store", "test_one_bad_entry_shifts_nothing"),),
    ),
    Mutant(
        "replace-is-a-put",
        "put(replace=True) does not replace.",
        (Edit("client/mooncake_client/arguments.py", "            | (UPSERT if replace else 0)\n", ""),),
        (test("client/test_store", "test_replace_puts_a_new_value"),),
    ),
    Mutant(
        "ttl-dropped",
        "put(ttl_ms=...) stores a value without a TTL.",
        (
            Edit(
                "client/mooncake_client/arguments.py",
                '"ttl_ms": 0 if ttl_ms is None else whole("ttl_ms", ttl_ms, 1, TTL_MS_MAX),',
                '"ttl_ms": 0 if ttl_ms is None else whole("ttl_ms", ttl_ms, 1, TTL_MS_MAX) * 0,',
            ),
        ),
        (test("client/test_store", "test_a_value_ends_by_its_ttl"),),
    ),
]
