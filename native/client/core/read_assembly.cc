#include "client/core/read_assembly.h"

#include <cassert>

namespace mooncake::client {

bool ReadAssembly::accept(const wire::ReadReply& reply, bool has_more) {
    ranges_.clear();
    if (reply.payload_bytes > wire::kChunkBytesMax + reply.pieces.size() * sizeof(wire::Verdict))
        return false;
    for (std::size_t i = 0; i < reply.pieces.size(); ++i) {
        const auto& piece = reply.pieces[i];
        if (is_complete() || piece.index != next_) return false;
        if (piece.length > parts_[next_].length - received_) return false;
        const bool is_last = (piece.flags & wire::kPieceLast) != 0;
        const bool is_whole = is_last && received_ + piece.length == parts_[next_].length;
        ranges_.push_back({next_, is_last, is_whole, received_, piece.length});
        if (!reply.metadata[i].empty()) answers_[next_].user_metadata = reply.metadata[i];
        received_ += piece.length;
        if (is_last) {
            ++next_;
            received_ = 0;
        }
    }
    // A frame that brings nothing would let a peer keep us waiting for ever.
    return has_more ? !reply.pieces.empty() && !is_complete() : is_complete();
}

void ReadAssembly::settle(std::span<const wire::Verdict> verdicts) {
    assert(verdicts.size() == ranges_.size());
    for (std::size_t i = 0; i < ranges_.size(); ++i) {
        if (!ranges_[i].is_last) continue;
        auto& verdict = answers_[ranges_[i].part].verdict;
        verdict = verdicts[i];
        // What came decides, whatever the node says: a short value is not this value.
        if (!ranges_[i].is_whole && wire::ok(verdict.status)) verdict.status = wire::Status::kTransferFail;
    }
}

void ReadAssembly::refuse(wire::Status status) {
    for (auto part = next_; part < parts_.size(); ++part) answers_[part].verdict.status = status;
    next_ = static_cast<std::uint32_t>(parts_.size());
}

}  // namespace mooncake::client
