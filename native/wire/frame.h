// The frame: 24 bytes of header, a body, and (data plane only) a payload whose length the body's descriptors
// give. Lane, control and data connections all speak it; proto/FRAMES.md is the contract this file
// implements.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "wire/bytes.h"
#include "wire/ids.h"
#include "wire/limits.h"
#include "wire/status.h"

namespace mooncake::wire {

inline constexpr std::uint32_t kMagic = 0x3153434D;  // "MCS1"
inline constexpr std::uint16_t kVersionMin = 1;
inline constexpr std::uint16_t kVersionMax = 1;

enum class Verb : std::uint8_t {
    kHello = 1,
    kOpenSession = 2,
    kHeartbeat = 3,
    kCloseSession = 4,
    kMount = 5,
    kUnmount = 6,
    kSegments = 7,
    kDrain = 8,  // node to master
    kExists = 10,
    kMatchPrefix = 11,
    kLookup = 12,
    kPutStart = 13,
    kPutEnd = 14,
    kPutRevoke = 15,
    kRemove = 16,
    kTouch = 17,
    kRelease = 18,
    kWhy = 19,
    kList = 20,
    kStats = 21,
    kInspect = 22,
    kCreateCopyTask = 23,
    kCreateMoveTask = 24,
    kQueryTask = 25,
    kRetire = 30,      // master to node
    kReport = 31,      // node to master
    kInventory = 32,   // node to master
    kCopy = 33,        // master to node
    kTombstones = 34,  // node to master
    kHoldings = 35,    // node to master
    kRead = 40,
    kWrite = 41,
    kPing = 42,
    kMap = 43,  // these three: between processes of one host
    kOpen = 44,
    kClose = 45,
    kTransferRead = 50,  // the last four: between transfer engines
    kTransferWrite = 51,
    kNotify = 52,
    kFirstBuffer = 53,
};

const char* verb_name(Verb verb);

enum FrameFlags : std::uint8_t {
    kFlagReply = 1,
    kFlagMore = 2,  // another frame with this request_id follows
};

struct FrameHeader {
    std::uint32_t body_bytes = 0;
    Verb verb = Verb::kPing;
    std::uint8_t flags = 0;
    Status status = Status::kOk;   // of the whole frame; when not OK the body is a text16 that says why
    std::uint64_t request_id = 0;  // chosen by the asker, repeated in every answer
    std::uint64_t epoch = 0;       // the reign the sender follows; 0 = knows none yet

    bool is_reply() const { return (flags & kFlagReply) != 0; }
    bool has_more() const { return (flags & kFlagMore) != 0; }
};
inline constexpr std::size_t kFrameHeaderBytes = 24;
static_assert(sizeof(FrameHeader) == kFrameHeaderBytes && std::is_trivially_copyable_v<FrameHeader>);

// nullopt: the bytes cannot be a frame (unknown verb or flag, a body above body_max, an epoch above
// kEpochMax); end the connection.
std::optional<FrameHeader> parse_frame_header(Bytes header, std::size_t body_max = kBodyBytesMax);

// Starts a frame in `buffer` (appended) and returns where, for finish_frame once the body is written.
std::size_t begin_frame(Buffer& buffer, const FrameHeader& header);
void finish_frame(Buffer& buffer, std::size_t start);

// A whole answer that refuses: status and why.
Buffer refusal(const FrameHeader& request, Status status, std::string_view why, std::uint64_t epoch = 0);
FrameHeader reply_header(const FrameHeader& request, Status status, std::uint64_t epoch);

enum class Role : std::uint8_t { kClient = 1, kNode = 2, kData = 3, kEngine = 4 };
enum class AuthKind : std::uint8_t { kNone = 0, kToken = 1 };

// The first frame on every connection.
struct Hello {
    std::uint16_t version_min = kVersionMin;
    std::uint16_t version_max = kVersionMax;
    Role role = Role::kClient;
    AuthKind auth_kind = AuthKind::kNone;
    Uuid process{};         // this life of the sender's process
    std::string_view auth;  // room for a token; empty while there is no authentication
    std::string_view software;
    std::string_view tenant;
};
void encode(const Hello& hello, Writer& writer);
std::optional<Hello> parse_hello(Bytes body);

// Its answer.
struct Welcome {
    std::uint16_t version = kVersionMax;
    Uuid process{};  // the master's uuid, or the node's incarnation
    std::string_view software;
};
void encode(const Welcome& welcome, Writer& writer);
std::optional<Welcome> parse_welcome(Bytes body);

// The version both can speak, or nullopt and, in `why`, a sentence naming both.
std::optional<std::uint16_t> choose_version(const Hello& hello, std::string_view our_software,
                                            std::string& why);

// What a connection's first frame comes to at whoever listens. OK: its hello, of one of `roles`. Else why it
// is refused, for the peer to read; `wrong_role` says where it is.
struct Greeting {
    Status status = Status::kOk;  // or MALFORMED, VERSION_MISMATCH, ILLEGAL_CLIENT
    std::string why;
    Hello hello;
    std::uint16_t version = 0;  // that both speak
};
Greeting greet(const FrameHeader& header, Bytes body, std::initializer_list<Role> roles,
               std::string_view our_software, std::string_view wrong_role);
// The whole frame that welcomes; `process` is this one.
Buffer welcome(const FrameHeader& request, const Greeting& greeting, const Uuid& process,
               std::string_view our_software, std::uint64_t epoch);

}  // namespace mooncake::wire
