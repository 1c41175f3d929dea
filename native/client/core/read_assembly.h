// Puts the frames of a read's answer back together: which bytes of which part come next, and whether a peer's
// descriptors can be believed. Decides only; the driver receives.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "client/core/operation.h"

namespace mooncake::client {

// A part ends with one piece marked last; pieces come in the order of the parts and never exceed them, so a
// hostile peer can write nothing but what was asked for, where it was asked for.
class ReadAssembly {
  public:
    ReadAssembly() = default;
    explicit ReadAssembly(std::span<const ReadPart> parts) : parts_(parts), answers_(parts.size()) {}

    struct Range {
        std::uint32_t part = 0;
        bool is_last = false;
        bool is_whole = false;     // with it the part has all of its bytes
        std::uint64_t offset = 0;  // within the part
        std::uint64_t length = 0;
    };

    // One frame's descriptors: ranges() are then to be received in order, a wire::Verdict after each.
    // false: an answer that cannot be.
    bool accept(const wire::ReadReply& reply, bool has_more);
    std::span<const Range> ranges() const { return ranges_; }
    // All of them were received. Until then no answer has a verdict: a connection may end amid the bytes.
    void settle(std::span<const wire::Verdict> verdicts);
    // The node refused the whole request.
    void refuse(wire::Status status);

    bool is_complete() const { return next_ == parts_.size(); }
    std::vector<PartAnswer>& answers() { return answers_; }

  private:
    std::span<const ReadPart> parts_;
    std::vector<PartAnswer> answers_;
    std::vector<Range> ranges_;
    std::uint32_t next_ = 0;      // the part whose pieces come now
    std::uint64_t received_ = 0;  // of it
};

}  // namespace mooncake::client
