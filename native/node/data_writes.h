// The writes of one data connection: ranges granted by the directory, payload received straight into them,
// then sealed.
#pragma once

#include <memory>

#include "net/connection.h"
#include "node/data_peer.h"
#include "wire/data.h"

namespace mooncake::node {

// Grants what can be granted, receives the payload (that of refused values is discarded), seals and answers.
// Called from on_frame. If the connection ends or stalls amid the payload, the ranges go back.
void receive_write(const std::shared_ptr<DataShared>& shared, const std::shared_ptr<DataPeer>& peer,
                   net::Connection& connection, const wire::FrameHeader& request, const wire::Write& write);

}  // namespace mooncake::node
