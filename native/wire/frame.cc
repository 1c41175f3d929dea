#include "wire/frame.h"
#include <algorithm>

namespace mooncake::wire {

const char* verb_name(Verb verb) {
    switch (verb) {
        case Verb::kHello:
            return "hello";
        case Verb::kOpenSession:
            return "open_session";
        case Verb::kHeartbeat:
            return "heartbeat";
        case Verb::kCloseSession:
            return "close_session";
        case Verb::kMount:
            return "mount";
        case Verb::kUnmount:
            return "unmount";
        case Verb::kDrain:
            return "drain";
        case Verb::kSegments:
            return "segments";
        case Verb::kExists:
            return "exists";
        case Verb::kMatchPrefix:
            return "match_prefix";
        case Verb::kLookup:
            return "lookup";
        case Verb::kPutStart:
            return "put_start";
        case Verb::kPutEnd:
            return "put_end";
        case Verb::kPutRevoke:
            return "put_revoke";
        case Verb::kRemove:
            return "remove";
        case Verb::kTouch:
            return "touch";
        case Verb::kRelease:
            return "release";
        case Verb::kWhy:
            return "why";
        case Verb::kList:
            return "list";
        case Verb::kStats:
            return "stats";
        case Verb::kInspect:
            return "inspect";
        case Verb::kCreateCopyTask:
            return "create_copy_task";
        case Verb::kCreateMoveTask:
            return "create_move_task";
        case Verb::kQueryTask:
            return "query_task";
        case Verb::kRetire:
            return "retire";
        case Verb::kReport:
            return "report";
        case Verb::kCopy:
            return "copy";
        case Verb::kInventory:
            return "inventory";
        case Verb::kTombstones:
            return "tombstones";
        case Verb::kHoldings:
            return "holdings";
        case Verb::kRead:
            return "read";
        case Verb::kWrite:
            return "write";
        case Verb::kPing:
            return "ping";
        case Verb::kMap:
            return "map";
        case Verb::kOpen:
            return "open";
        case Verb::kClose:
            return "close";
        case Verb::kTransferRead:
            return "transfer_read";
        case Verb::kTransferWrite:
            return "transfer_write";
        case Verb::kNotify:
            return "notify";
        case Verb::kFirstBuffer:
            return "first_buffer";
    }
    return nullptr;
}

std::optional<FrameHeader> parse_frame_header(Bytes bytes, std::size_t body_max) {
    Reader reader(bytes);
    const auto header = reader.get<FrameHeader>();
    if (!reader.ok() || verb_name(header.verb) == nullptr || header.body_bytes > body_max ||
        (header.flags & ~(kFlagReply | kFlagMore)) != 0 || header.epoch > kEpochMax) {
        return std::nullopt;
    }
    return header;
}

std::size_t begin_frame(Buffer& buffer, const FrameHeader& header) {
    const std::size_t start = buffer.size();
    Writer(buffer).put(header);
    return start;
}

void finish_frame(Buffer& buffer, std::size_t start) {
    const auto body = static_cast<std::uint32_t>(buffer.size() - start - kFrameHeaderBytes);
    Writer(buffer).patch(start, body);
}

FrameHeader reply_header(const FrameHeader& request, Status status, std::uint64_t epoch) {
    FrameHeader header = request;
    header.body_bytes = 0;
    header.flags = kFlagReply;
    header.status = status;
    header.epoch = epoch;
    return header;
}

Buffer refusal(const FrameHeader& request, Status status, std::string_view why, std::uint64_t epoch) {
    Buffer buffer;
    const std::size_t start = begin_frame(buffer, reply_header(request, status, epoch));
    Writer(buffer).text16(why.substr(0, kHelloBytesMax));
    finish_frame(buffer, start);
    return buffer;
}

void encode(const Hello& hello, Writer& writer) {
    writer.put(kMagic);
    writer.put(hello.version_min);
    writer.put(hello.version_max);
    writer.put(hello.role);
    writer.put(hello.auth_kind);
    writer.put(hello.process);
    writer.text16(hello.auth);
    writer.text16(hello.software);
    writer.text16(hello.tenant);
}

std::optional<Hello> parse_hello(Bytes body) {
    Reader reader(body);
    Hello hello;
    if (reader.get<std::uint32_t>() != kMagic) return std::nullopt;
    hello.version_min = reader.get<std::uint16_t>();
    hello.version_max = reader.get<std::uint16_t>();
    hello.role = reader.get<Role>();
    hello.auth_kind = reader.get<AuthKind>();
    hello.process = reader.get<Uuid>();
    hello.auth = reader.text16(kAuthBytesMax);
    hello.software = reader.text16(kNameBytesMax);
    hello.tenant = reader.text16(kTenantBytesMax);
    // Bytes after the tenant belong to a later version's fields: ignored, so that it may add some.
    if (!reader.ok() || hello.role < Role::kClient || hello.role > Role::kEngine) return std::nullopt;
    return hello;
}

void encode(const Welcome& welcome, Writer& writer) {
    writer.put(welcome.version);
    writer.put(welcome.process);
    writer.text16(welcome.software);
}

std::optional<Welcome> parse_welcome(Bytes body) {
    Reader reader(body);
    Welcome welcome;
    welcome.version = reader.get<std::uint16_t>();
    welcome.process = reader.get<Uuid>();
    welcome.software = reader.text16(kNameBytesMax);
    if (!reader.ok()) return std::nullopt;
    return welcome;
}

std::optional<std::uint16_t> choose_version(const Hello& hello, std::string_view our_software,
                                            std::string& why) {
    const std::uint16_t highest = hello.version_max < kVersionMax ? hello.version_max : kVersionMax;
    if (highest >= hello.version_min && highest >= kVersionMin) return highest;
    why = "protocol versions do not meet: peer ";
    why.append(hello.software).append(" speaks ").append(std::to_string(hello.version_min)).append("-");
    why.append(std::to_string(hello.version_max)).append(", this ").append(our_software).append(" speaks ");
    why.append(std::to_string(kVersionMin)).append("-").append(std::to_string(kVersionMax));
    return std::nullopt;
}

Greeting greet(const FrameHeader& header, Bytes body, std::initializer_list<Role> roles,
               std::string_view our_software, std::string_view wrong_role) {
    const bool is_hello = header.verb == Verb::kHello && !header.is_reply() && body.size() <= kHelloBytesMax;
    const auto hello = is_hello ? parse_hello(body) : std::nullopt;
    if (!hello) return {Status::kMalformed, "the first frame must be a hello", {}, 0};
    Greeting greeting{Status::kOk, {}, *hello, 0};
    const auto version = choose_version(*hello, our_software, greeting.why);
    if (!version) {
        greeting.status = Status::kVersionMismatch;
    } else if (std::find(roles.begin(), roles.end(), hello->role) == roles.end()) {
        greeting.status = Status::kIllegalClient;
        greeting.why = wrong_role;
    } else {
        greeting.version = *version;
    }
    return greeting;
}

Buffer welcome(const FrameHeader& request, const Greeting& greeting, const Uuid& process,
               std::string_view our_software, std::uint64_t epoch) {
    Buffer frame;
    const std::size_t start = begin_frame(frame, reply_header(request, Status::kOk, epoch));
    Writer writer(frame);
    encode(Welcome{greeting.version, process, our_software}, writer);
    finish_frame(frame, start);
    return frame;
}

}  // namespace mooncake::wire
