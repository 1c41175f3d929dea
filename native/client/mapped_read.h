// A read from a node whose memory is mapped here: references are taken by frames, the bytes are copied from
// where they lie, and the references are given back. Packs and parses frames and copies; sends nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "client/core/operation.h"
#include "client/memory.h"
#include "client/view.h"
#include "net/shared_memory.h"
#include "wire/shared_memory.h"

namespace mooncake::client {

// Reads together smaller than this come with the node's answer: a copy of so little costs less than taking
// and giving back references.
inline constexpr std::uint64_t kMappedBytesMin = 64u << 10;
// Copied under one set of references, before the call looks up from it.
inline constexpr std::uint64_t kMappedGroupBytes = 16u << 20;

class MappedRead {
  public:
    // false: it is better answered by the node's bytes.
    static bool suits(const NodeRead& read);

    MappedRead(const NodeRead& read, std::span<const Target> targets,
               std::shared_ptr<const net::SharedMemory> memory);
    // The values are not copied: what is opened is put there and stays open. link: of the connection.
    void look(Views& views, std::shared_ptr<net::ViewLink> link);

    // What is to be sent next: references to be given back, and a question for more. False: no question, all
    // has been answered; what there is to be given back need not be waited for.
    bool pack_next(std::uint64_t request_id, wire::Buffer& frames);
    // Copies what was asked for. False: an answer that cannot be.
    bool take(wire::Bytes body);

    std::vector<PartAnswer>& answers() { return answers_; }
    // Parts that this node does not give so, now or ever: to be asked for as bytes.
    const std::vector<std::uint32_t>& left() const { return left_; }
    const std::vector<wire::ReadItem>& items() const { return asked_.items; }
    std::uint32_t flags() const { return asked_.flags; }

  private:
    bool use(std::uint32_t part, const wire::Opened& opened);
    void copy(std::uint32_t part, const std::uint8_t* value);
    void view(std::uint32_t part, const wire::Opened& opened, const std::uint8_t* value);

    const NodeRead& read_;
    const std::span<const Target> targets_;
    const std::shared_ptr<const net::SharedMemory> memory_;
    Views* views_ = nullptr;
    std::shared_ptr<net::ViewLink> link_;
    wire::Read asked_;
    std::vector<PartAnswer> answers_;
    std::vector<std::uint64_t> to_close_;
    std::vector<std::uint32_t> left_;
    std::size_t begin_ = 0;  // of the parts that are being asked for
    std::size_t end_ = 0;
};

}  // namespace mooncake::client
