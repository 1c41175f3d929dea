// The reads of one data connection: references for a whole batch, then its values in chunks, straight from
// their ranges.
//
// Used on the connection's loop only. At most kChunksInFlight chunks are queued at the connection, so that a
// ping or a small read waits for megabytes at most, not for a whole batch.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "net/connection.h"
#include "node/data_peer.h"
#include "wire/data.h"

namespace mooncake::node {

class ReadJob;

class ReadQueue : public std::enable_shared_from_this<ReadQueue> {
  public:
    ReadQueue(std::shared_ptr<DataShared> shared, std::shared_ptr<DataPeer> peer,
              std::weak_ptr<net::Connection> connection);
    ~ReadQueue();

    void start(net::Connection& connection, const wire::FrameHeader& request, const wire::Read& read);
    void close();  // the connection has ended: what is not at it already is given up

  private:
    void pump();

    std::shared_ptr<DataShared> shared_;
    std::shared_ptr<DataPeer> peer_;
    std::weak_ptr<net::Connection> connection_;
    std::deque<std::shared_ptr<ReadJob>> jobs_;  // not yet wholly queued at the connection
    std::size_t chunks_in_flight_ = 0;
    std::shared_ptr<std::size_t> items_pending_ = std::make_shared<std::size_t>(0);
    bool closed_ = false;
};

}  // namespace mooncake::node
