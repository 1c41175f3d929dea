#include "data_watch.h"

#include <algorithm>
#include <cstring>

#include "wire/lane.h"
#include "wire/value_header.h"

namespace simulation {

namespace wire = mooncake::wire;

void DataWatch::retired(std::span<const wire::ReplicaId> replicas) {
    retired_.insert(replicas.begin(), replicas.end());
}

void DataWatch::sent(const Socket& from, std::span<const std::uint8_t> bytes) {
    if (from.local.port != data_port_ && from.remote.port != data_port_) return;
    Connection& connection = connections_[from.connection];
    Direction& direction = connection.directions[from.is_dialler ? 0 : 1];
    direction.partial.insert(direction.partial.end(), bytes.begin(), bytes.end());
    std::size_t at = 0;
    while (true) {
        const auto rest = std::span<const std::uint8_t>(direction.partial).subspan(at);
        const std::size_t used = direction.payload.empty() ? take_frame(from, connection, direction, rest)
                                                           : take_payload(from, connection, direction, rest);
        if (used == 0) break;
        at += used;
    }
    direction.partial.erase(direction.partial.begin(),
                            direction.partial.begin() + static_cast<std::ptrdiff_t>(at));
}

std::size_t DataWatch::take_payload(const Socket& from, Connection& connection, Direction& direction,
                                    std::span<const std::uint8_t> bytes) {
    Expected& next = direction.payload.front();
    if (next.skipped > 0) {
        const std::size_t count = std::min<std::size_t>(next.skipped, bytes.size());
        next.skipped -= count;
        if (next.skipped == 0 && !next.has_verdict) direction.payload.pop_front();
        return count;
    }
    if (bytes.size() < sizeof(wire::Verdict)) return 0;
    wire::Verdict verdict;
    std::memcpy(&verdict, bytes.data(), sizeof verdict);
    const auto request = connection.requests.find(next.request_id);
    if (next.is_last && request != connection.requests.end()) {
        served(from, request->second, next.item, verdict.status, "read");
    }
    direction.payload.pop_front();
    if (direction.payload.empty() && direction.over != 0) {
        connection.requests.erase(direction.over);
        direction.over = 0;
    }
    return sizeof verdict;
}

std::size_t DataWatch::take_frame(const Socket& from, Connection& connection, Direction& direction,
                                  std::span<const std::uint8_t> bytes) {
    if (bytes.size() < wire::kFrameHeaderBytes) return 0;
    wire::FrameHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const std::size_t whole = wire::kFrameHeaderBytes + header.body_bytes;
    if (bytes.size() < whole) return 0;
    const auto body = bytes.subspan(wire::kFrameHeaderBytes, header.body_bytes);
    if (from.is_dialler) {
        asked(from, connection, direction, header, body);
    } else {
        answered(from, connection, direction, header, body);
    }
    return whole;
}

void DataWatch::asked(const Socket& from, Connection& connection, Direction& direction,
                      const wire::FrameHeader& header, wire::Bytes body) {
    Request request;
    if (header.verb == wire::Verb::kRead) {
        const auto read = wire::parse_read(body);
        for (const auto& item : read->items) request.replicas.push_back(item.replica);
    } else if (header.verb == wire::Verb::kWrite) {
        const auto write = wire::parse_write(body);
        for (const auto& item : write->items) request.replicas.push_back(item.replica);
        if (write->payload_bytes > 0) direction.payload.push_back({write->payload_bytes, false, false, 0, 0});
        for (std::size_t i = 0; journal_.keeps_lines() && i < write->headers.size(); ++i) {
            const auto value = wire::parse_value_header(write->headers[i]);
            keys_[write->items[i].replica] = std::string(value->key);
        }
    } else {
        return;
    }
    for (const auto replica : request.replicas) {
        if (retired_.contains(replica)) request.retired_before.insert(replica);
        if (!journal_.keeps_lines()) continue;
        journal_.line(from.host->name + " asks",
                      std::string(wire::verb_name(header.verb)) + " replica " + id_text(replica) +
                          " [connection " + std::to_string(from.connection) + "]",
                      {keys_[replica]});
    }
    connection.requests[header.request_id] = std::move(request);
}

void DataWatch::answered(const Socket& from, Connection& connection, Direction& direction,
                         const wire::FrameHeader& header, wire::Bytes body) {
    const auto request = connection.requests.find(header.request_id);
    if (request == connection.requests.end()) return;
    if (header.verb == wire::Verb::kRead && wire::ok(header.status)) {
        const auto reply = wire::parse_read_reply(body);
        for (const auto& piece : reply->pieces) {
            const bool is_last = (piece.flags & wire::kPieceLast) != 0;
            direction.payload.push_back({piece.length, true, is_last, header.request_id, piece.index});
        }
        if (!header.has_more()) direction.over = header.request_id;
        return;
    }
    if (header.verb == wire::Verb::kWrite && wire::ok(header.status)) {
        const auto statuses = wire::parse_statuses(body);
        for (std::size_t i = 0; i < statuses->size(); ++i) {
            served(from, request->second, i, (*statuses)[i], "write");
        }
    }
    connection.requests.erase(request);
}

void DataWatch::served(const Socket& from, const Request& request, std::size_t item, wire::Status status,
                       const char* what) {
    const auto replica = request.replicas[item];
    if (journal_.keeps_lines()) {
        journal_.line(from.host->name + " to connection " + std::to_string(from.connection),
                      std::string(what) + " replica " + id_text(replica) + "=" + wire::status_name(status),
                      {keys_[replica]});
    }
    if (!wire::ok(status) || !request.retired_before.contains(replica)) return;
    violated(from.host->name + " answers OK to a " + what + " of replica " + id_text(replica) +
             ", which it had confirmed to be retired before that was asked" +
             (keys_[replica].empty() ? "" : "\nkey: " + keys_[replica]));
}

}  // namespace simulation
