// One packed request on its way through the state machine, in bounded steps.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "wire/frame.h"
#include "wire/lane.h"

namespace mooncake::metadata {

// Holds a copy of the request's body, the answer so far and the position. Made by Metadata::command without
// the lock; moved through Metadata::step under it, as often as it takes.
class Command {
  public:
    Command();
    ~Command();
    Command(Command&&) noexcept;
    Command& operator=(Command&&) noexcept;

    wire::Verb verb() const;
    wire::SessionId session() const;  // 0 for open_session until it is answered
    std::uint64_t sequence() const;   // 0 for a request that changes nothing
    bool done() const;                // the answer is complete

    // The answer, once done(): the frame's status and its body (a text16 when the status is not OK).
    wire::Status status() const;
    const wire::Buffer& body() const;
    wire::Buffer take_body();

    // Not done() after a step that answered true: keys of this put_start only lack space that retirements
    // under way will return. Step it again after kSpaceReturned, or give up with refuse_waiting.
    bool waits_for_space() const;
    // Once done(): replicas this remove, revoke or commit retired. The caller may be answered when all are
    // confirmed.
    const std::vector<wire::ReplicaId>& retired() const;
    // Once done(): it ended values that nodes may come with of which nobody knows yet, so that a master after
    // this one has to be told (see Metadata::generation_due).
    bool ends_unseen() const;
    // A value of one of its keys ended before it, not long ago.
    bool ended_lately() const;

    struct State;
    State& state() { return *state_; }

  private:
    std::unique_ptr<State> state_;
};

}  // namespace mooncake::metadata
