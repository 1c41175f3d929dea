// Conversations with a master, as events of master_fuzz.cc: what its corpus begins with.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "fuzz.h"
#include "wire/lane.h"

namespace fuzz::master_events {

using namespace mooncake;
using wire::Verb;

enum Event : std::uint8_t {
    kConnect,
    kOpenSession,
    kMount,
    kPutStart,
    kPutEnd,
    kPutRevoke,
    kKeys,
    kReport,
    kInventory,
    kAsk,  // heartbeat, close_session, list, segments, stats, unmount, ping
    kConfirm,
    kCopied,
    kTime,
    kRepeat,
    kRaw,
    kRawBody,
    kDisconnect,
    kTombstones,
    kEvents
};

constexpr std::array kKeysVerbs = {Verb::kExists, Verb::kMatchPrefix, Verb::kLookup, Verb::kRemove,
                                   Verb::kTouch,  Verb::kRelease,     Verb::kWhy};
constexpr std::array kAskVerbs = {Verb::kHeartbeat, Verb::kCloseSession, Verb::kList,
                                  Verb::kSegments,  Verb::kStats,        Verb::kUnmount,
                                  Verb::kPing,      Verb::kInspect,      Verb::kDrain,
                                  Verb::kQueryTask, Verb::kCreateCopyTask, Verb::kCreateMoveTask};

inline Script& event(Script& script, Event what, std::size_t peer,
              std::initializer_list<std::uint8_t> choices = {}) {
    script.u8(what).u8(peer);
    for (const auto choice : choices) script.u8(choice);
    return script;
}

// A node (peer 0) with one segment of `size` * 512 bytes, and a client (peer 1).
inline Script cluster(std::uint8_t size) {
    Script script;
    event(script, kConnect, 0, {1, 10});
    event(script, kOpenSession, 0, {10, 0, 0});
    event(script, kMount, 0, {1, size, 10, 0, 0, 1, 0, 0, 0});
    event(script, kConnect, 1, {0, 11});
    event(script, kOpenSession, 1, {11, 1, 1});
    return script;
}

inline void put(Script& script, std::size_t peer, std::initializer_list<std::uint8_t> keys, std::uint8_t size,
         std::uint8_t replicas = 1, std::uint8_t flags = 0) {
    script.u8(kPutStart).u8(peer).u8(keys.size());
    for (const auto key : keys) script.u8(key);
    for (std::size_t i = 0; i < keys.size(); ++i) script.u8(size);
    script.u8(replicas).u8(flags).u8(0).u8(0).u8(0).u8(0).u8(0);
    script.u8(kPutEnd).u8(peer).u8(0).u8(4).u8(0);
    for (std::size_t i = 0; i < keys.size() * replicas; ++i) script.u8(0);
    script.u8(0);
}

inline void ask_keys(Script& script, std::size_t peer, std::uint8_t verb, std::initializer_list<std::uint8_t> keys) {
    script.u8(kKeys).u8(peer).u8(verb).u8(keys.size());
    for (const auto key : keys) script.u8(key);
    script.u8(0).u8(0);
}

inline std::vector<std::pair<std::string, wire::Buffer>> conversations() {
    std::vector<std::pair<std::string, wire::Buffer>> made;
    Script life = cluster(100);
    put(life, 1, {1, 2, 3}, 40);
    for (std::uint8_t verb = 0; verb < kKeysVerbs.size(); ++verb) ask_keys(life, 1, verb, {1, 2, 9});
    event(life, kConfirm, 0, {1});
    event(life, kReport, 0, {1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 0, 1});
    for (std::uint8_t verb = 0; verb < kAskVerbs.size(); ++verb) event(life, kAsk, 1, {verb, 0, 0, 0, 0});
    event(life, kAsk, 1, {kAskVerbs.size() - 1, 1, 1, 0, 0});
    event(life, kAsk, 1, {kAskVerbs.size() - 1, 2, 1, 0, 0});
    made.emplace_back("life", life);

    Script full = cluster(20);  // 10,240 bytes; a value takes 4,864
    put(full, 1, {1, 2}, 50);
    put(full, 1, {3, 4}, 50);
    event(full, kConfirm, 0, {0});
    event(full, kTime, 0, {50, 0, 0});
    put(full, 1, {5}, 50);
    event(full, kConfirm, 0, {2});
    event(full, kTime, 0, {200, 0, 0});
    event(full, kReport, 0, {0, 0, 1});
    made.emplace_back("eviction", full);

    Script upsert = cluster(100);
    put(upsert, 1, {1}, 10, 1, wire::kPutHardPin);
    put(upsert, 1, {1}, 20, 1, wire::kPutUpsert | wire::kPutSoftPin);
    ask_keys(upsert, 1, 2, {1});
    event(upsert, kTime, 0, {0xFF, 0xFF, 1});
    event(upsert, kRepeat, 1, {1});
    event(upsert, kDisconnect, 0);
    event(upsert, kTime, 0, {0xFF, 0xFF, 0});
    made.emplace_back("upsert_and_silence", upsert);

    Script two = cluster(60);
    event(two, kConnect, 2, {1, 12});
    event(two, kOpenSession, 2, {12, 0, 0});
    event(two, kMount, 2, {1, 60, 12, 1, 1, 1, 1, 0, 0});
    put(two, 1, {1, 2}, 20, 2);
    ask_keys(two, 1, 2, {1, 2});
    ask_keys(two, 1, 3, {1});
    event(two, kConfirm, 0, {0});
    event(two, kConfirm, 2, {1});
    event(two, kAsk, 0, {5, 1, 0, 0, 0});
    event(two, kConnect, 3, {1, 13});
    event(two, kOpenSession, 3, {13, 0, 0});
    event(two, kMount, 3, {1, 60, 13, 1, 1, 1, 1, 130, 0});  // the same endpoint, a later epoch
    made.emplace_back("two_nodes", two);

    Script repaired = cluster(60);  // three nodes, two copies; one node leaves, and another is told to
    for (const std::uint8_t node : {std::uint8_t{2}, std::uint8_t{3}}) {
        const auto process = static_cast<std::uint8_t>(10 + node);
        event(repaired, kConnect, node, {1, process});
        event(repaired, kOpenSession, node, {process, node, node});
        event(repaired, kMount, node, {1, 60, process, node, node, 1, 1, 0, 0});
    }
    put(repaired, 1, {1, 2, 3, 4}, 20, 2);
    event(repaired, kAsk, 0, {1, 1});
    event(repaired, kTime, 0, {10, 0, 0});
    for (int i = 0; i < 4; ++i) event(repaired, kCopied, 2, {1}).u8(kCopied).u8(3).u8(1);
    event(repaired, kAsk, 2, {8, 1, 2, 0, 0, 0});
    event(repaired, kTime, 0, {10, 0, 0});
    for (int i = 0; i < 4; ++i) event(repaired, kCopied, 3, {4});
    made.emplace_back("repair", repaired);

    Script unfinished = cluster(60);
    event(unfinished, kPutStart, 1, {2, 1, 2, 20, 20, 1, 0, 0, 0, 0, 0, 0});
    event(unfinished, kConnect, 2, {0, 14});
    event(unfinished, kOpenSession, 2, {14, 1, 1});
    event(unfinished, kPutStart, 2, {2, 1, 3, 20, 20, 1, 0, 0, 0, 0, 0, 0});
    event(unfinished, kPutRevoke, 1, {1, 0});
    event(unfinished, kDisconnect, 1);
    event(unfinished, kTime, 0, {0xD0, 0x07, 0});
    made.emplace_back("unfinished", unfinished);

    Script rebuilt;  // a node of an earlier reign comes with three values, one of them older than another
    event(rebuilt, kConnect, 0, {1, 10});
    event(rebuilt, kOpenSession, 0, {10, 0, 0});
    event(rebuilt, kMount, 0, {1, 60, 10, 0, 0, 1, 0, 1, 0});
    event(rebuilt, kInventory, 0, {1, 2, 2, 0, 5, 20, 4, 0, 0, 1, 3, 0, 6, 20, 2, 1, 9, 9, 0, 2, 0});
    event(rebuilt, kInventory, 0, {2, 1, 4, 0, 7, 30, 4, 0, 0, 1, 0});
    event(rebuilt, kConnect, 1, {0, 11});
    event(rebuilt, kOpenSession, 1, {11, 0, 0});
    ask_keys(rebuilt, 1, 2, {1, 2, 3});
    put(rebuilt, 1, {1, 2}, 20, 1, wire::kPutUpsert);
    ask_keys(rebuilt, 1, 3, {1, 2});
    event(rebuilt, kConfirm, 0, {0});
    event(rebuilt, kTombstones, 0, {0, 2, 4, 6, 1, 3, 9, 0});
    ask_keys(rebuilt, 1, 2, {1, 2, 3});
    made.emplace_back("rebuild", rebuilt);

    Script raw = cluster(60);
    raw.u8(kRaw).u8(1).chunk(fuzz::frame(Verb::kStats, 9, packed([](auto& writer) {
                                             wire::encode_prefix({wire::make_id(1, 3), 0, 0, 0}, {}, writer);
                                         })));
    raw.u8(kRawBody).u8(1).u8(static_cast<std::size_t>(Verb::kPutStart)).u8(0).chunk(wire::Buffer(40, 0));
    raw.u8(kRawBody).u8(0).u8(static_cast<std::size_t>(Verb::kRetire)).u8(1).chunk(wire::Buffer(16, 0));
    made.emplace_back("raw", raw);
    return made;
}

}  // namespace fuzz::master_events
