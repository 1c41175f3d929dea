// What the client at the other end of a Unix socket may do with this node's memory: map it, and look at
// values there under references that are taken and given back by frames.
//
// Used on the connection's loop only. References end by close, or when the client's end of the connection has
// closed: before that nothing tells that it looks no more.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "net/connection.h"
#include "node/data_peer.h"
#include "wire/data.h"
#include "wire/shared_memory.h"

namespace mooncake::node {

class DataViews {
  public:
    explicit DataViews(std::shared_ptr<DataShared> shared) : shared_(std::move(shared)) {}
    ~DataViews();  // the client's end has closed: gives all references back
    DataViews(const DataViews&) = delete;
    DataViews& operator=(const DataViews&) = delete;

    // Why this connection may not; empty: it may.
    static std::string refusal(const DataShared& shared, const net::Connection& connection,
                               std::string_view tenant);

    void map(net::Connection& connection, const wire::FrameHeader& request);
    void open(net::Connection& connection, const wire::FrameHeader& request, const wire::Read& asked);
    // false: one of them was never given, or is closed already.
    bool close(std::span<const std::uint64_t> references);
    bool is_empty() const { return held_.empty(); }

  private:
    struct Held {
        Directory::Entry* reference = nullptr;
        std::uint64_t size = 0;
    };
    wire::Opened take(Directory& directory, const wire::ReadItem& item, wire::Bytes& header);
    void give_back(std::span<const Held> held);

    const std::shared_ptr<DataShared> shared_;
    std::unordered_map<std::uint64_t, Held> held_;
    std::uint64_t held_bytes_ = 0;
    std::uint64_t last_reference_ = 0;
};

}  // namespace mooncake::node
