#include "wire/tombstones.h"

namespace mooncake::wire {

namespace {

std::optional<Tombstones> parse_rest(Reader& reader) {
    Tombstones tombstones;
    tombstones.epoch = reader.get<std::uint64_t>();
    tombstones.closed_epoch = reader.get<std::uint64_t>();
    const auto expelled = reader.get<std::uint32_t>();
    const auto floors = reader.get<std::uint32_t>();
    const auto replicas = reader.get<std::uint32_t>();
    const auto keys = reader.get<std::uint32_t>();
    tombstones.expelled = reader.array<Uuid>(expelled, kExpelledMax);
    tombstones.floors = reader.array<Tombstones::Floor>(floors, kTombstonesMax);
    tombstones.replicas = reader.array<ReplicaId>(replicas, kTombstonesMax);
    tombstones.keys = reader.array<Tombstones::Key>(keys, kTombstonesMax);
    if (!reader.finished()) return std::nullopt;
    return tombstones;
}

}  // namespace

void encode(const Tombstones& tombstones, Writer& writer) {
    writer.put(tombstones.epoch);
    writer.put(tombstones.closed_epoch);
    writer.put(static_cast<std::uint32_t>(tombstones.expelled.size()));
    writer.put(static_cast<std::uint32_t>(tombstones.floors.size()));
    writer.put(static_cast<std::uint32_t>(tombstones.replicas.size()));
    writer.put(static_cast<std::uint32_t>(tombstones.keys.size()));
    writer.array(std::span(tombstones.expelled));
    writer.array(std::span(tombstones.floors));
    writer.array(std::span(tombstones.replicas));
    writer.array(std::span(tombstones.keys));
}

std::optional<Tombstones> parse_tombstones(Bytes body) {
    Reader reader(body);
    return parse_rest(reader);
}

void encode_tombstones_request(const Prefix& prefix, Bytes kept, Writer& writer) {
    encode_prefix(prefix, {}, writer);
    writer.bytes(kept);
}

std::optional<TombstonesRequest> parse_tombstones_request(Bytes body) {
    Reader reader(body);
    TombstonesRequest message;
    message.request = parse_prefix(reader);
    if (!reader.ok()) return std::nullopt;
    if (reader.remaining() == 0) return message;
    message.kept = parse_rest(reader);
    if (!message.kept) return std::nullopt;
    return message;
}

void encode_tombstones_reply(std::uint64_t generation, Bytes kept, Writer& writer) {
    writer.put(generation);
    writer.bytes(kept);
}

std::optional<TombstonesReply> parse_tombstones_reply(Bytes body) {
    Reader reader(body);
    TombstonesReply reply;
    reply.generation = reader.get<std::uint64_t>();
    reply.kept = reader.bytes(reader.remaining());
    if (!reader.ok() || !parse_tombstones(reply.kept)) return std::nullopt;
    return reply;
}

}  // namespace mooncake::wire
