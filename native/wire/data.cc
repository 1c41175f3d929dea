#include "wire/data.h"

#include "wire/value_header.h"

namespace mooncake::wire {

namespace {

template <class T>
void put_records(std::uint32_t flags, std::span<const T> values, Writer& writer) {
    writer.put(static_cast<std::uint32_t>(values.size()));
    writer.put(flags);
    writer.array(values);
}

}  // namespace

void encode_read(std::uint32_t flags, std::span<const ReadItem> items, Writer& writer) {
    put_records(flags, items, writer);
}

std::optional<Read> parse_read(Bytes body) {
    Reader reader(body);
    Read message;
    const auto count = reader.get<std::uint32_t>();
    message.flags = reader.get<std::uint32_t>();
    message.items = reader.array<ReadItem>(count, kBatchKeysMax);
    if (!reader.finished()) return std::nullopt;
    return message;
}

void encode_read_reply(std::span<const Piece> pieces, std::span<const std::string_view> metadata,
                       Writer& writer) {
    put_records(0, pieces, writer);
    for (const auto text : metadata) writer.bytes(as_bytes(text));
}

std::optional<ReadReply> parse_read_reply(Bytes body, std::size_t metadata_max) {
    Reader reader(body);
    ReadReply reply;
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    reply.pieces = reader.array<Piece>(count, kBatchKeysMax);
    for (const auto& piece : reply.pieces) {
        if (piece.length > kChunkBytesMax || piece.metadata_bytes > metadata_max) return std::nullopt;
        reply.payload_bytes += piece.length + sizeof(Verdict);
        reply.metadata.push_back(as_text(reader.bytes(piece.metadata_bytes)));
    }
    if (!reader.finished()) return std::nullopt;
    return reply;
}

void encode_write(std::span<const WriteItem> items, std::span<const Buffer> headers, Writer& writer) {
    put_records(0, items, writer);
    for (const auto& header : headers) writer.bytes(header);
}

std::optional<Write> parse_write(Bytes body) {
    Reader reader(body);
    Write message;
    const auto count = reader.get<std::uint32_t>();
    reader.get<std::uint32_t>();
    message.items = reader.array<WriteItem>(count, kBatchKeysMax);
    for (const auto& item : message.items) {
        if (item.length > kValueBytesMax || item.header_bytes > kValueHeaderBytesMax) return std::nullopt;
        message.payload_bytes += item.length;
        message.headers.push_back(reader.bytes(item.header_bytes));
    }
    if (!reader.finished()) return std::nullopt;
    return message;
}

}  // namespace mooncake::wire
