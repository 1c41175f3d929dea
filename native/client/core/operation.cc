#include "client/core/operation.h"

#include <algorithm>
#include <cassert>

namespace mooncake::client {

namespace {

constexpr std::size_t kPrefixAt = wire::kFrameHeaderBytes;
constexpr std::size_t kEpochAt = offsetof(wire::FrameHeader, epoch);

// Answers for the whole frame after which the same question may well be answered.
bool is_passing(wire::Status status) {
    return status == wire::Status::kBusy || status == wire::Status::kRebuilding;
}

}  // namespace

wire::Writer Operation::begin_ask(wire::Verb verb, bool mutating) {
    const Stamp stamp = cluster_.stamp(mutating);
    lane_verb_ = verb;
    mutating_ = mutating;
    repeats_ = 0;
    prefix_ = {stamp.session, stamp.sequence, 0, 0};
    lane_frame_.clear();
    wire::FrameHeader header;
    header.verb = verb;
    header.epoch = stamp.epoch;
    wire::begin_frame(lane_frame_, header);
    return wire::Writer(lane_frame_);
}

void Operation::end_ask(Actions& actions) {
    wire::finish_frame(lane_frame_, 0);
    lane_ = Lane::kAsked;
    actions.lane = true;
}

// Another session (or reign) gives another number; the rest of the request stays.
void Operation::restamp() {
    const Stamp stamp = cluster_.stamp(mutating_);
    prefix_.session = stamp.session;
    prefix_.sequence = stamp.sequence;
    wire::Writer writer(lane_frame_);
    writer.patch(kEpochAt, stamp.epoch);
    writer.patch(kPrefixAt + offsetof(wire::Prefix, session), stamp.session);
    writer.patch(kPrefixAt + offsetof(wire::Prefix, sequence), stamp.sequence);
}

void Operation::repeat_later(std::uint64_t now_ms, Actions& actions) {
    // The first repetition goes at once: most often a pooled connection had died of age.
    if (repeats_++ == 0) {
        lane_ = Lane::kAsked;
        actions.lane = true;
        return;
    }
    const auto shift = std::min(repeats_ - 2, 16U);
    repeat_at_ms_ = now_ms + std::min(kRepeatDelayMinMs << shift, kRepeatDelayMaxMs);
    lane_ = Lane::kWaitsToRepeat;
}

bool Operation::on_lane_answer(const wire::FrameHeader& header, wire::Bytes body, std::uint64_t now_ms,
                               Actions& actions) {
    if (done_ || lane_ != Lane::kAsked) return true;
    if (wire::ok(header.status)) {
        lane_ = Lane::kIdle;
        if (on_answer(body, now_ms, actions)) return true;
        set_why("the master's answer does not parse");
        answer_rest(wire::Status::kRpcFail);
        finish();
        return false;
    }
    wire::Reader reader(body);
    set_why(reader.text16(wire::kHelloBytesMax));
    last_refusal_ = header.status;
    switch (header.status) {
        case wire::Status::kSessionUnknown:
        case wire::Status::kStaleEpoch:
            lane_ = Lane::kWaitsForSession;
            actions.open_session = true;
            break;
        case wire::Status::kStaleRequest:
            // The master forgot what became of it; only a new number gets an answer.
            restamp();
            repeat_later(now_ms, actions);
            break;
        default:
            if (is_passing(header.status)) {
                ++repeats_;  // not at once
                repeat_later(now_ms, actions);
            } else {
                lane_ = Lane::kIdle;
                on_refused(header.status, now_ms, actions);
            }
    }
    return true;
}

void Operation::on_lane_failed(Failure, std::string_view why, std::uint64_t now_ms, Actions& actions) {
    if (done_ || lane_ != Lane::kAsked) return;
    set_why(why);
    last_refusal_ = wire::Status::kRpcFail;
    repeat_later(now_ms, actions);
}

void Operation::on_session(Actions& actions) {
    if (done_ || lane_ != Lane::kWaitsForSession) return;
    restamp();
    lane_ = Lane::kAsked;
    actions.lane = true;
}

void Operation::on_time(std::uint64_t now_ms, Actions& actions) {
    if (done_) return;
    if (now_ms >= deadline_ms_) {
        give_up(lane_ == Lane::kIdle || lane_ == Lane::kAsked ? wire::Status::kDeadline : last_refusal_);
        return;
    }
    if (lane_ == Lane::kWaitsToRepeat && now_ms >= repeat_at_ms_) {
        lane_ = Lane::kAsked;
        actions.lane = true;
    }
    if (wake_at_ms_ != 0 && now_ms >= wake_at_ms_) {
        wake_at_ms_ = 0;
        on_wake(now_ms, actions);
    }
}

std::uint64_t Operation::wake_ms() const {
    std::uint64_t when = deadline_ms_;
    if (lane_ == Lane::kWaitsToRepeat) when = std::min(when, repeat_at_ms_);
    if (wake_at_ms_ != 0) when = std::min(when, wake_at_ms_);
    return when;
}

void Operation::give_up(wire::Status why) {
    if (done_) return;
    answer_rest(why);
    finish();
}

void Operation::ask_segments(std::span<const wire::SegmentId> ids, Actions& actions) {
    auto writer = begin_ask(wire::Verb::kSegments, false);
    wire::encode_segment_ids(prefix(), ids.first(std::min(ids.size(), wire::kBatchKeysMax)), writer);
    end_ask(actions);
}

bool Operation::learn_segments(std::span<const wire::SegmentId> asked, wire::Bytes body) {
    const auto infos = wire::parse_segments_reply(body);
    if (!infos) return false;
    cluster_.learn(asked.first(std::min(asked.size(), wire::kBatchKeysMax)), *infos);
    return true;
}

// Operations without reads or writes are never told of any.
void Operation::on_read_done(Ticket, std::span<PartAnswer>, std::uint64_t, Actions&) { assert(false); }
void Operation::on_read_failed(Ticket, std::span<PartAnswer>, Failure, std::string_view, std::uint64_t,
                               Actions&) {
    assert(false);
}
bool Operation::on_write_answer(Ticket, const wire::FrameHeader&, wire::Bytes, std::uint64_t, Actions&) {
    assert(false);
    return false;
}
void Operation::on_write_failed(Ticket, Failure, std::string_view, std::uint64_t, Actions&) { assert(false); }

}  // namespace mooncake::client
