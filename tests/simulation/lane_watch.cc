#include "lane_watch.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "master/bounded_clock.h"
#include "wire/control.h"

namespace simulation {

namespace wire = mooncake::wire;
using wire::Status;
using wire::Verb;

namespace {

constexpr Ms kClockStepMaxMs = 500;  // of MasterOptions, which nobody changes here

std::vector<std::string> key_names(const wire::KeyList& keys) {
    std::vector<std::string> names;
    for (wire::KeyList::Cursor cursor(keys); !cursor.done();) names.emplace_back(cursor.next());
    return names;
}

}  // namespace

void LaneWatch::sent(const Socket& from, std::span<const std::uint8_t> bytes) {
    journal_.note(from.connection * 2 + (from.is_dialler ? 1 : 0), bytes);
    if (from.local.port != lane_port_ && from.remote.port != lane_port_) return;
    Connection& connection = connections_[from.connection];
    auto& partial = connection.partial[from.is_dialler ? 0 : 1];
    partial.insert(partial.end(), bytes.begin(), bytes.end());
    std::size_t at = 0;
    while (partial.size() - at >= wire::kFrameHeaderBytes) {
        std::uint32_t body_bytes = 0;
        std::memcpy(&body_bytes, partial.data() + at, sizeof body_bytes);
        const std::size_t whole = wire::kFrameHeaderBytes + body_bytes;
        if (partial.size() - at < whole) break;
        frame(from, connection, std::span(partial).subspan(at, whole));
        at += whole;
    }
    partial.erase(partial.begin(), partial.begin() + static_cast<std::ptrdiff_t>(at));
}

void LaneWatch::frame(const Socket& from, Connection& connection, std::span<const std::uint8_t> bytes) {
    wire::Reader reader(bytes);
    const auto header = reader.get<wire::FrameHeader>();
    const auto body = reader.bytes(reader.remaining());
    if (header.verb == Verb::kHello && from.is_dialler) {
        const auto hello = wire::parse_hello(body);
        connection.is_client = hello && hello->role == wire::Role::kClient;
        connection.hello.assign(bytes.begin(), bytes.end());
        return;
    }
    if (header.is_reply() == from.is_dialler) return command(connection, from, header, body);
    if (from.is_dialler) {
        request(from, connection, header, body);
        if (connection.is_client && repeat_) repeat_(from, connection.hello, {bytes.begin(), bytes.end()});
    } else {
        answer(from, connection, header, body);
    }
}

// Of the master, and its answer: from a node.
void LaneWatch::command(Connection& connection, const Socket& from, const wire::FrameHeader& header,
                        wire::Bytes body) {
    if (header.verb != Verb::kRetire || !wire::ok(header.status)) return;
    if (header.is_reply()) {
        const auto reply = wire::parse_retire_reply(body);
        const auto found = connection.retires.find(reply->command_id);
        if (found != connection.retires.end() && on_retired) on_retired(found->second);
        return;
    }
    auto retire = wire::parse_retire(body);
    if (journal_.keeps_lines()) {
        std::string ids;
        for (const auto id : retire->replicas) ids += " " + id_text(id);
        journal_.line(from.host->name + " to connection " + std::to_string(from.connection), "retire" + ids);
    }
    connection.retires[retire->command_id] = std::move(retire->replicas);
}

void LaneWatch::request(const Socket& from, Connection& connection, const wire::FrameHeader& header,
                        wire::Bytes body) {
    Request request;
    request.verb = header.verb;
    std::string told = wire::verb_name(header.verb);
    switch (header.verb) {
        case Verb::kExists:
        case Verb::kMatchPrefix:
        case Verb::kLookup:
        case Verb::kTouch:
        case Verb::kRelease:
            if (journal_.keeps_lines()) request.keys = key_names(wire::parse_keys_request(body)->keys);
            break;
        case Verb::kRemove: {
            const auto parsed = wire::parse_keys_request(body);
            const auto& prefix = parsed->request.prefix;
            request.keys = key_names(parsed->keys);
            auto& removes = removes_[{prefix.session, prefix.sequence}];
            if (removes.empty()) {
                for (const auto& key : request.keys) removes.push_back(history_.remove_sent(key));
            }
            request.removes = removes;
            if ((prefix.flags & wire::kRemoveForce) != 0) told += " by force";
            break;
        }
        case Verb::kPutStart: {
            const auto parsed = wire::parse_put_start(body);
            request.keys = key_names(parsed->keys);
            request.put = {parsed->options.ttl_ms, (parsed->options.flags & wire::kPutHardPin) != 0};
            if ((parsed->options.flags & wire::kPutUpsert) != 0) told += " (upsert)";
            told += ", " + std::to_string(parsed->options.replica_count) + " replicas";
            break;
        }
        case Verb::kPutEnd: {
            const auto parsed = wire::parse_put_end(body);
            for (const auto& item : parsed->items) {
                history_.commit_sent(item.put_id);
                request.put_ids.push_back(item.put_id);
            }
            break;
        }
        case Verb::kPutRevoke:
            request.put_ids = wire::parse_put_revoke(body)->put_ids;
            for (const auto put_id : request.put_ids) history_.revoke_sent(put_id);
            break;
        case Verb::kReport: {
            if (!journal_.keeps_lines()) break;
            const auto report = wire::parse_report(body);
            for (const auto id : report->freed) told += " freed " + id_text(id);
            if (!report->freed.empty()) journal_.line(from.host->name, told);
            break;
        }
        default:
            break;
    }
    wire::Reader reader(body);
    const auto prefix = wire::parse_prefix(reader).prefix;
    request.sent_ms = World::current()->now_ms();
    if (connection.is_client && header.verb != Verb::kOpenSession) request.session = prefix.session;
    if (header.verb == Verb::kCloseSession) heard_.erase(prefix.session);
    if (journal_.keeps_lines() && (!request.keys.empty() || !request.put_ids.empty())) {
        auto keys = request.keys;
        for (const auto put_id : request.put_ids) {
            told += " " + id_text(put_id);
            if (const auto* key = history_.key_of(put_id)) keys.push_back(*key);
        }
        told += " [" + id_text(prefix.session) + "/" + std::to_string(prefix.sequence) + ", connection " +
                std::to_string(from.connection) + "]";
        journal_.line(from.host->name + " asks", told, keys);
    }
    connection.requests[header.request_id] = std::move(request);
}

void LaneWatch::answer(const Socket& from, Connection& connection, const wire::FrameHeader& header,
                       wire::Bytes body) {
    const auto found = connection.requests.find(header.request_id);
    if (found == connection.requests.end()) return;
    const Request request = std::move(found->second);
    connection.requests.erase(found);
    check_session(*from.host, request, header);
    std::string told = std::string(wire::verb_name(request.verb)) + " answered";
    if (!wire::ok(header.status)) {
        ++answers[{request.verb, header.status}];
        told += std::string(" ") + wire::status_name(header.status);
    } else if (request.verb == Verb::kPutStart) {
        on_grants(request, body, told);
    } else if (request.verb == Verb::kLookup) {
        const auto places = wire::Places<wire::LookupRecord>::parse(body);
        for (std::uint32_t i = 0; i < places->count; ++i) {
            const auto record = places->record(i);
            ++answers[{request.verb, record.status}];
            if (!journal_.keeps_lines()) continue;
            told += " " + request.keys[i] + "=" + wire::status_name(record.status);
            if (wire::ok(record.status)) told += ":" + id_text(record.put_id);
        }
    } else if (request.verb == Verb::kPutEnd || request.verb == Verb::kPutRevoke ||
               request.verb == Verb::kRemove || request.verb == Verb::kExists) {
        on_statuses(request, body, told);
    }
    if (!journal_.keeps_lines()) return;
    auto keys = request.keys;
    for (const auto put_id : request.put_ids) {
        if (const auto* key = history_.key_of(put_id)) keys.push_back(*key);
    }
    if (!keys.empty())
        journal_.line(from.host->name + " to connection " + std::to_string(from.connection), told, keys);
}

// A master's clock is never faster than the world's: whoever it heard less than client_ttl ago is no
// stranger.
void LaneWatch::check_session(const Host& master, const Request& request, const wire::FrameHeader& header) {
    if (request.session == 0) return;
    Heard& heard = heard_[request.session];
    if (request.verb == Verb::kHeartbeat && wire::ok(header.status)) {
        if (heard.epoch != header.epoch || heard.master != master.name) heard = {};
        heard = {header.epoch, master.name, std::max(heard.sent_ms, request.sent_ms)};
    }
    if (header.status != Status::kSessionUnknown) return;
    if (heard.epoch != header.epoch || heard.master != master.name) return;
    // It notes the reading of its clock before, and counts the time of a stop up to a limit.
    const Ms early_ms = mooncake::master::kClockPeriodMs + 10 +
                        (master.went_on_ms + 100 >= heard.sent_ms ? kClockStepMaxMs : 0);
    if (World::current()->now_ms() + early_ms < heard.sent_ms + client_ttl_ms_) {
        violated("the master has ended session " + id_text(request.session) + ", whose heartbeat of " +
                 std::to_string(heard.sent_ms) + " ms it had answered");
    }
    heard_.erase(request.session);
}

void LaneWatch::on_grants(const Request& request, wire::Bytes body, std::string& told) {
    const auto places = wire::Places<wire::GrantRecord>::parse(body);
    if (places->count != request.keys.size()) {
        violated("put_start of " + std::to_string(request.keys.size()) + " keys is answered for " +
                 std::to_string(places->count) + "\nkey: " + request.keys[0]);
    }
    std::size_t place = 0;
    for (std::uint32_t i = 0; i < places->count; ++i) {
        const auto record = places->record(i);
        ++answers[{request.verb, record.status}];
        std::vector<wire::ReplicaId> replicas;
        std::string where;
        for (std::size_t end = place + record.replica_count; place < end; ++place) {
            const auto at = places->place(place);
            replicas.push_back(at.replica);
            if (!journal_.keeps_lines()) continue;
            where += " (replica " + id_text(at.replica) + " on " + id_text(at.segment) + ")";
        }
        if (wire::ok(record.status)) {
            history_.granted(request.keys[i], record.put_id, request.put, std::move(replicas));
        }
        if (journal_.keeps_lines()) {
            told += " " + request.keys[i] + "=" + wire::status_name(record.status);
            if (wire::ok(record.status)) told += ":" + id_text(record.put_id) + where;
        }
    }
}

void LaneWatch::on_statuses(const Request& request, wire::Bytes body, std::string& told) {
    const auto statuses = wire::parse_statuses(body);
    const std::size_t asked = std::max(request.put_ids.size(), request.keys.size());
    if (asked > 0 && statuses->size() != asked) {
        violated(std::string(wire::verb_name(request.verb)) + " of " + std::to_string(asked) +
                 " items is answered for " + std::to_string(statuses->size()));
    }
    for (std::size_t i = 0; i < statuses->size(); ++i) {
        const Status status = (*statuses)[i];
        ++answers[{request.verb, status}];
        if (request.verb == Verb::kPutEnd) {
            history_.commit_answered(request.put_ids[i], wire::ok(status));
        } else if (request.verb == Verb::kRemove) {
            history_.remove_answered(request.keys[i], request.removes[i], wire::ok(status));
        }
        if (!journal_.keeps_lines()) continue;
        const auto name = request.put_ids.empty() ? (request.keys.empty() ? "" : request.keys[i])
                                                  : id_text(request.put_ids[i]);
        told += " " + name + "=" + wire::status_name(status);
    }
}

}  // namespace simulation
