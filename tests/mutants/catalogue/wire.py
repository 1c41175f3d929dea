"""Bugs of the frames: lengths, limits, checksums, digests."""

from mutants.planted import Edit, Mutant, native, test

MUTANTS = [
    Mutant(
        "big-frames-are-trusted",
        "A frame's length is believed however long it is.",
        (
            Edit(
                "native/wire/frame.cc",
                "verb_name(header.verb) == nullptr || header.body_bytes > body_max ||",
                "verb_name(header.verb) == nullptr ||",
            ),
        ),
        (test("wire/test_python_messages", "test_bytes_that_cannot_be_a_frame_header_are_refused"),),
    ),
    Mutant(
        "unknown-verbs-are-frames",
        "A header with a verb that nobody knows passes for a frame's.",
        (
            Edit(
                "native/wire/frame.cc",
                "verb_name(header.verb) == nullptr || header.body_bytes > body_max ||",
                "header.body_bytes > body_max ||",
            ),
        ),
        (test("wire/test_python_messages", "test_bytes_that_cannot_be_a_frame_header_are_refused"),),
    ),
    Mutant(
        "any-magic-will-do",
        "hello does not compare the magic number, so that a stray client of another protocol is welcome.",
        (
            Edit(
                "native/wire/frame.cc",
                "    if (reader.get<std::uint32_t>() != kMagic) return std::nullopt;",
                "    if (reader.get<std::uint32_t>() == 0) return std::nullopt;",
            ),
        ),
        (test("master/test_lane", "test_hello_of_another_protocol_ends_the_connection"),),
    ),
    Mutant(
        "versions-need-not-meet",
        "A peer whose lowest version is above ours is welcomed.",
        (
            Edit(
                "native/wire/frame.cc",
                "    if (highest >= hello.version_min && highest >= kVersionMin) return highest;",
                "    if (highest >= kVersionMin) return highest;",
            ),
        ),
        (test("master/test_lane", "test_versions_that_do_not_meet_are_refused_naming_both"),),
    ),
    Mutant(
        "put-end-results-are-not-counted",
        "put_end believes the number of results that its items claim: it reads behind those that came.",
        (
            Edit(
                "native/wire/lane.cc",
                "    if (owned != message.results.size()) return std::nullopt;\n",
                "",
            ),
        ),
        (test("wire/test_python_messages", "test_put_end_whose_items_claim_other_results_is_malformed"),),
    ),
    Mutant(
        "endless-batches",
        "A request may name any number of keys.",
        (
            Edit(
                "native/wire/lane.cc",
                "    if (count > max) reader.fail();\n    return reader.ok() ? count : 0;",
                "    return reader.ok() ? count : 0;",
            ),
        ),
        (test("wire/test_python_messages", "test_counts_above_their_limits_are_malformed"),),
    ),
    Mutant(
        "endless-avoid-lists",
        "A request may name any number of segments to avoid.",
        (
            Edit(
                "native/wire/lane.cc",
                "    if (request.prefix.avoid_count > kAvoidMax) reader.fail();\n",
                "",
            ),
        ),
        (test("wire/test_python_messages", "test_counts_above_their_limits_are_malformed"),),
    ),
    Mutant(
        "longest-key-is-too-long",
        "A node refuses a value whose key has exactly 1,024 bytes.",
        (
            Edit(
                "native/wire/value_header.cc",
                "    header.key = reader.text16(kKeyBytesMax);",
                "    header.key = reader.text16(kKeyBytesMax - 1);",
            ),
        ),
        (test("client/test_store", "test_the_longest_key_is_a_key"),),
    ),
    Mutant(
        "checksum-without-put-id",
        "The seed of a value's checksum leaves the put_id out: an older value of the key passes for the newer one.",
        (
            Edit(
                "native/wire/value_checksum.cc",
                "    return crc32c(crc, &put_id, sizeof(put_id));",
                "    return crc;",
            ),
        ),
        (native("client_core_test", "an_older_value_of_the_key_is_never_an_answer"),),
    ),
    Mutant(
        "checksum-without-key",
        "The seed of a value's checksum leaves the key out: another key's value passes.",
        (Edit("native/wire/value_checksum.cc", "    crc = crc32c(crc, key.data(), key.size());\n", ""),),
        (native("client_core_test", "the_checksum_of_a_value_covers_tenant_key_and_put_id"),),
    ),
    Mutant(
        "checksum-without-tenant",
        "The seed of a value's checksum leaves the tenant out.",
        (
            Edit(
                "native/wire/value_checksum.cc", "    crc = crc32c(crc, tenant.data(), tenant.size());\n", ""
            ),
        ),
        (native("client_core_test", "the_checksum_of_a_value_covers_tenant_key_and_put_id"),),
    ),
    Mutant(
        "digest-without-tenant",
        "The digest of a read names the key alone: tenants read each other's values.",
        (
            Edit(
                "native/wire/digest.cc",
                "    return xxh64(key.data(), key.size(), xxh64(tenant.data(), tenant.size(), 0));",
                "    return xxh64(key.data(), key.size(), 0);",
            ),
        ),
        (test("wire/test_digest", "test_key_digest_vectors"),),
    ),
    Mutant(
        "combine-forgets-the-length",
        "The checksum of two joined parts shifts the first by one byte less than the second is long.",
        (
            Edit(
                "native/wire/crc32c.cc",
                "for (size_t k = 0; length_b != 0; ++k, length_b >>= 1) {",
                "if (length_b != 0) --length_b;\n    for (size_t k = 0; length_b != 0; ++k, length_b >>= 1) {",
            ),
        ),
        (test("wire/test_crc32c", "test_combine_gives_the_checksum_of_both"),),
    ),
    Mutant(
        "pieces-of-any-length",
        "A read's answer may claim a piece longer than a chunk.",
        (
            Edit(
                "native/wire/data.cc",
                "        if (piece.length > kChunkBytesMax || piece.metadata_bytes > metadata_max) return std::nullopt;",
                "        if (piece.metadata_bytes > metadata_max) return std::nullopt;",
            ),
        ),
        (native("client_core_test", "a_piece_longer_than_a_chunk_is_malformed"),),
    ),
    Mutant(
        "terabytes-in-one-write",
        "A write may claim a value of any length.",
        (
            Edit(
                "native/wire/data.cc",
                "        if (item.length > kValueBytesMax || item.header_bytes > kValueHeaderBytesMax) return std::nullopt;",
                "        if (item.header_bytes > kValueHeaderBytesMax) return std::nullopt;",
            ),
        ),
        (native("node_data_test", "a_write_longer_than_any_value_is_malformed"),),
    ),
]
