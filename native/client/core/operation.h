// One call of a user's as a state machine: events in, actions out. What is common to all: the one request to
// the master that is under way, its repetition, and the deadline.
//
// Nothing here waits, sends or knows what a socket is. The driver (client/call.h) carries the actions out and
// tells the operation what became of them; the simulation does the same over a network of its own.
//
//   start ─► {lane | reads, writes} ─► on_lane_answer / on_read_* / on_write_* ─► ... ─► done()
//
// A lost answer is asked for again with the same sequence number, so that it has the effect of one. An
// unknown session is opened anew by the driver; the request is then repeated with a new number: whatever an
// earlier attempt did under the old session ended with it, or is found by its ids.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/core/cluster.h"
#include "wire/data.h"
#include "wire/frame.h"
#include "wire/lane.h"

namespace mooncake::client {

// Names one NodeRead or NodeWrite within its operation.
using Ticket = std::uint32_t;

// A part of a value to be received: bytes [offset, offset + length) of the value that the caller calls
// `index`.
struct ReadPart {
    std::uint32_t index = 0;
    std::uint32_t checksum_seed = 0;  // the part's checksum continues this
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
};
struct NodeRead {
    PeerId peer = kNoPeer;
    bool fresh_connection = false;  // not one that may have broken while it lay idle
    bool checksums = true;          // the driver is to compute PartAnswer::checksum
    std::uint64_t deadline_ms = 0;
    std::uint64_t bytes = 0;
    wire::Buffer frame;  // request_id still to be set
    std::vector<ReadPart> parts;
};
struct PartAnswer {
    wire::Verdict verdict{wire::Status::kTransferFail, 0, 0};  // as long as none has come
    std::uint32_t checksum = 0;                                // of what was received
    std::string user_metadata;
};

struct NodeWrite {
    PeerId peer = kNoPeer;
    bool fresh_connection = false;
    std::uint64_t deadline_ms = 0;
    std::uint64_t bytes = 0;
    wire::Buffer frame;                // request_id still to be set; the values follow it as payload,
    std::vector<std::uint32_t> index;  // in this order, as the caller counts them
};

struct Actions {
    bool lane = false;          // send lane_frame() to the master
    bool open_session = false;  // the session is gone: on_session() once there is another
    std::vector<Ticket> reads;
    std::vector<Ticket> writes;
};

inline constexpr std::size_t kLaneBodyBytesMax = 8u << 20;  // a request to the master is cut at this
inline constexpr std::uint64_t kRepeatDelayMinMs = 10;      // doubles with each lost answer
inline constexpr std::uint64_t kRepeatDelayMaxMs = 500;
inline constexpr std::uint64_t kStripeBytesMin = 1u << 20;  // more for one peer goes over two connections

class Operation {
  public:
    Operation(Cluster& cluster, std::uint64_t deadline_ms) : cluster_(cluster), deadline_ms_(deadline_ms) {}
    virtual ~Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

    void start(std::uint64_t now_ms, Actions& actions) { begin(now_ms, actions); }

    // false: the answer cannot be one; the connection is to be closed. The operation has dealt with it.
    bool on_lane_answer(const wire::FrameHeader& header, wire::Bytes body, std::uint64_t now_ms,
                        Actions& actions);
    void on_lane_failed(Failure failure, std::string_view why, std::uint64_t now_ms, Actions& actions);
    void on_session(Actions& actions);

    // Answers in the order of the parts; those without a verdict of the node's keep kTransferFail.
    virtual void on_read_done(Ticket ticket, std::span<PartAnswer> answers, std::uint64_t now_ms,
                              Actions& actions);
    virtual void on_read_failed(Ticket ticket, std::span<PartAnswer> answers, Failure failure,
                                std::string_view why, std::uint64_t now_ms, Actions& actions);
    virtual bool on_write_answer(Ticket ticket, const wire::FrameHeader& header, wire::Bytes body,
                                 std::uint64_t now_ms, Actions& actions);
    virtual void on_write_failed(Ticket ticket, Failure failure, std::string_view why, std::uint64_t now_ms,
                                 Actions& actions);

    // Call at wake_ms() at the latest.
    void on_time(std::uint64_t now_ms, Actions& actions);
    std::uint64_t wake_ms() const;
    // The caller stops waiting (cancelled, closed): answers what is left with `why`, revokes what was begun.
    void give_up(wire::Status why);

    bool done() const { return done_; }
    wire::Buffer& lane_frame() { return lane_frame_; }
    wire::Verb lane_verb() const { return lane_verb_; }
    NodeRead& read(Ticket ticket) { return reads_[ticket]; }
    NodeWrite& write(Ticket ticket) { return writes_[ticket]; }
    std::uint64_t deadline_ms() const { return deadline_ms_; }
    // What went wrong last, for the message of an error; empty if nothing did.
    const std::string& why() const { return why_; }

  protected:
    virtual void begin(std::uint64_t now_ms, Actions& actions) = 0;
    // The master's answer to the last ask(); false: malformed.
    virtual bool on_answer(wire::Bytes body, std::uint64_t now_ms, Actions& actions) = 0;
    // The master refused the request as a whole.
    virtual void on_refused(wire::Status status, std::uint64_t now_ms, Actions& actions) = 0;
    virtual void on_wake(std::uint64_t, Actions&) {}
    // Gives every key without an answer this one.
    virtual void answer_rest(wire::Status status) = 0;

    // ask: begin_ask, encode with prefix() and what avoid() gives, end_ask.
    wire::Writer begin_ask(wire::Verb verb, bool mutating);
    const wire::Prefix& prefix() const { return prefix_; }
    void end_ask(Actions& actions);
    void ask_segments(std::span<const wire::SegmentId> ids, Actions& actions);
    // The answer to ask_segments; false: malformed.
    bool learn_segments(std::span<const wire::SegmentId> asked, wire::Bytes body);

    void finish() { done_ = true; }
    void resume(std::uint64_t deadline_ms) {
        done_ = false;
        deadline_ms_ = deadline_ms;
    }
    void wake_at(std::uint64_t when_ms) { wake_at_ms_ = when_ms; }  // 0: not
    void set_why(std::string_view why) { why_ = why; }

    Cluster& cluster_;
    std::deque<NodeRead> reads_;  // by ticket; a deque, so that the driver's references stay good
    std::deque<NodeWrite> writes_;

  private:
    enum class Lane : std::uint8_t { kIdle, kAsked, kWaitsForSession, kWaitsToRepeat };
    void repeat_later(std::uint64_t now_ms, Actions& actions);
    void restamp();

    std::uint64_t deadline_ms_;
    std::uint64_t wake_at_ms_ = 0;
    std::uint64_t repeat_at_ms_ = 0;
    unsigned repeats_ = 0;
    Lane lane_ = Lane::kIdle;
    bool done_ = false;
    bool mutating_ = false;
    wire::Status last_refusal_ = wire::Status::kDeadline;
    wire::Verb lane_verb_ = wire::Verb::kPing;
    wire::Prefix prefix_{};
    wire::Buffer lane_frame_;
    std::string why_;
};

}  // namespace mooncake::client
