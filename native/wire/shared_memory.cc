#include "wire/shared_memory.h"

namespace mooncake::wire {

namespace {

template <class T>
void put_records(std::span<const T> values, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(values.size()));
    writer.put(std::uint32_t{0});
    writer.array(values);
}

template <class T>
std::vector<T> get_records(Reader& reader, std::size_t max) {
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    return reader.array<T>(count, max);
}

}  // namespace

void encode(const MapReply& reply, Writer& writer) {
    put_records(std::span(reply.segments), writer);
    writer.put(reply.view_bytes_max);
}

std::optional<MapReply> parse_map_reply(Bytes body) {
    Reader reader(body);
    MapReply reply;
    reply.segments = get_records<MapRecord>(reader, kSegmentsAMountMax);
    reply.view_bytes_max = reader.get<std::uint64_t>();
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_open_reply(std::span<const Opened> items, std::span<const std::string_view> metadata,
                       Writer& writer) {
    put_records(items, writer);
    for (const auto text : metadata) writer.bytes(as_bytes(text));
}

std::optional<OpenReply> parse_open_reply(Bytes body) {
    Reader reader(body);
    OpenReply reply;
    reply.items = get_records<Opened>(reader, kBatchKeysMax);
    for (const auto& item : reply.items) {
        if (item.metadata_bytes > kUserMetadataBytesMax || ok(item.status) != (item.reference != 0)) {
            return std::nullopt;
        }
        reply.metadata.push_back(as_text(reader.bytes(item.metadata_bytes)));
    }
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_close(std::span<const std::uint64_t> references, Writer& writer) {
    put_records(references, writer);
}

std::optional<std::vector<std::uint64_t>> parse_close(Bytes body) {
    Reader reader(body);
    auto references = get_records<std::uint64_t>(reader, kReferencesMax);
    if (!reader.finished()) return std::nullopt;
    return references;
}

}  // namespace mooncake::wire
