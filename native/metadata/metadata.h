// The metadata state machine: sessions, segments, objects, replicas, leases, capacity, eviction.
//
// Pure: commands in, answers and effects out. No IO, clock, thread, randomness or byte ranges; `now_ms` is an
// argument (the master's bounded monotonic clock) and ids and random choices come from the seed. One caller
// at a time: the native master puts one lock round it. Answers are packed bytes (wire/lane.h), the same for
// the lane and for gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "metadata/command.h"
#include "metadata/copy_order.h"
#include "metadata/effect.h"
#include "metadata/options.h"
#include "metadata/suspects.h"
#include "wire/control.h"
#include "wire/frame.h"
#include "wire/inspect.h"

namespace mooncake::metadata {

class Metadata {
  public:
    Metadata(const Options& options, std::uint64_t epoch, const wire::Uuid& master, std::uint64_t seed);
    ~Metadata();
    Metadata(const Metadata&) = delete;
    Metadata& operator=(const Metadata&) = delete;

    // Parses and checks a packed request; needs no lock and no object. A malformed body gives a command that
    // is done, with status MALFORMED. Verbs: open_session ... stats, and report; not hello, retire, read,
    // write, ping.
    static Command command(wire::Verb verb, wire::Bytes body);

    // Goes on with a command, at most keys_a_step_max keys. True: done, or it waits for space; false: call
    // again (the lock may be released in between). Effects are appended.
    bool step(Command& command, std::uint64_t now_ms, Effects& effects);
    // Answers NO_AVAILABLE_HANDLE for the keys that still wait for space; the command is done afterwards.
    void refuse_waiting(Command& command, std::uint64_t now_ms);

    // What the driver sees of connections: a session none of whose connections is open any more is detached;
    // from session_grace_ms on its unfinished puts are gone. Sessions that never attached (gRPC) live by
    // heartbeats alone.
    void session_attached(wire::SessionId session, std::uint64_t now_ms);
    void session_detached(wire::SessionId session, std::uint64_t now_ms);

    // The node of this session lives but does not carry out what it is told: it leaves the pool, as if it had
    // not been heard for client_ttl.
    void expel(wire::SessionId session, wire::EventReason reason, std::uint64_t now_ms, Effects& effects);

    // What kProbe asked for: how the node of this session answered a dial of its data endpoint. Sooner or
    // later each kProbe is followed by one; a node may be expelled for it.
    void probed(wire::SessionId node, ProbeResult result, std::uint64_t now_ms, Effects& effects);
    std::string endpoint(wire::SegmentId segment) const;  // the first; empty for a segment that left
    // This session asks for what it has already: a node that lost its connection for a while.
    bool has_mounted(wire::SessionId session, const wire::Mount& mount) const;

    // A node carried out a retire command: none of these is served any more, though reads of some may go on.
    // In one call or several; is_last with the command's last.
    void retire_confirmed(wire::SessionId node, std::uint64_t command_id,
                          std::span<const wire::ReplicaId> confirmed, bool is_last);
    // It has given the ranges of these back.
    void freed(std::span<const wire::ReplicaId> freed, Effects& effects);

    // Of a copy that an effect kCopy announced, as long as it is under way; and those whose target's node
    // this session is, for a node that lost its connection.
    std::optional<CopyOrder> copy_order(wire::ReplicaId target) const;
    std::vector<wire::ReplicaId> copies_to(wire::SessionId node) const;
    // That node has the replica whole (OK, SEALED), or will not have it. Others' and late answers: nothing.
    void copy_answered(wire::SessionId node, wire::ReplicaId target, wire::Status status,
                       std::uint64_t now_ms, Effects& effects);

    // A bounded step of what time brings: expired sessions, expelled segments' objects, reaped puts, ended
    // TTLs and pins, copies that may begin, eviction at the high watermark. True: nothing is left to do now;
    // false: call again soon.
    bool tick(std::uint64_t now_ms, Effects& effects);

    // A node that followed this master says that it is mounted at one of this epoch. If that reign is later
    // than this one, two masters run by mistake, and this one steps down: for client_ttl it refuses all but
    // stats and inspect with STALE_EPOCH, so that nodes and clients look for the other. deposed_by: its
    // epoch, or 0.
    void hear_of_reign(std::uint64_t epoch, const wire::Uuid& master, std::uint64_t now_ms);
    std::uint64_t deposed_by() const;

    std::uint64_t epoch() const;
    const wire::Uuid& master() const;
    // Ids at or below it belong to no unfinished put or copy.
    std::uint64_t settled_id() const;

    // What a master after this one must not take in (wire/tombstones.h), encoded, as it is told to nodes and
    // is to be kept by the driver; the generation rises with each change of it. restore: what an earlier
    // master here left, before the first command; false: it does not parse, and nothing is taken in.
    std::uint64_t tombstones_generation() const;
    // The one that will have all that ended so far, soon.
    std::uint64_t generation_due() const;
    const wire::Buffer& tombstones() const;
    bool restore_tombstones(wire::Bytes kept);

    // Counters and gauges by name (units in the name), for stats and /metrics; exact.
    std::vector<std::pair<std::string, std::uint64_t>> stats() const;

    // Aborts with what is wrong. Called after every step of every test.
    void check_invariants() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace mooncake::metadata
