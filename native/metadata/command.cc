#include "metadata/command.h"

#include "metadata/command_state.h"
#include "metadata/metadata.h"

namespace mooncake::metadata {

Command::Command() : state_(std::make_unique<State>()) {}
Command::~Command() = default;
Command::Command(Command&&) noexcept = default;
Command& Command::operator=(Command&&) noexcept = default;

wire::Verb Command::verb() const { return state_->verb; }
wire::SessionId Command::session() const { return state_->prefix.session; }
std::uint64_t Command::sequence() const { return state_->prefix.sequence; }
bool Command::done() const { return state_->done; }
wire::Status Command::status() const { return state_->status; }
const wire::Buffer& Command::body() const { return state_->body; }
wire::Buffer Command::take_body() { return std::move(state_->body); }
bool Command::waits_for_space() const {
    return !state_->done && state_->all_tried && !state_->waiting.empty();
}
const std::vector<wire::ReplicaId>& Command::retired() const { return state_->retired; }

bool Command::ends_unseen() const { return state_->ends_unseen; }
bool Command::ended_lately() const { return state_->ended_lately; }

std::size_t Command::State::key_count() const {
    if (const auto* keys = std::get_if<wire::KeysRequest>(&message)) return keys->keys.count();
    if (const auto* put = std::get_if<wire::PutStart>(&message)) return put->keys.count();
    if (const auto* end = std::get_if<wire::PutEnd>(&message)) return end->items.size();
    if (const auto* revoke = std::get_if<wire::PutRevoke>(&message)) return revoke->put_ids.size();
    if (const auto* inventory = std::get_if<wire::Inventory>(&message)) return inventory->items.size();
    return 0;
}

void Command::State::finish(wire::Status outcome, std::string_view why) {
    done = true;
    status = outcome;
    if (wire::ok(outcome)) return;
    body.assign(sizeof(std::uint16_t), 0);
    wire::Writer writer(body);
    writer.patch(0, static_cast<std::uint16_t>(why.size()));
    writer.bytes(wire::as_bytes(why));
}

namespace {

// Keeps the parsed message, or ends the command as malformed.
template <class Message>
void take(Command::State& state, std::optional<Message> message) {
    if (!message) {
        state.finish(wire::Status::kMalformed, std::string("malformed ") + wire::verb_name(state.verb));
        return;
    }
    if constexpr (!std::is_same_v<Message, wire::OpenSession>) {
        state.prefix = message->request.prefix;
        state.avoid = message->request.avoid;
    }
    state.message = std::move(*message);
}

void take_prefix(Command::State& state, wire::Bytes body) {
    wire::Reader reader(body);
    const wire::Request request = wire::parse_prefix(reader);
    if (!reader.finished()) {
        state.finish(wire::Status::kMalformed, std::string("malformed ") + wire::verb_name(state.verb));
        return;
    }
    state.prefix = request.prefix;
    state.avoid = request.avoid;
    state.message = request;
}

}  // namespace

Command Metadata::command(wire::Verb verb, wire::Bytes body) {
    Command command;
    Command::State& state = command.state();
    state.verb = verb;
    state.request.assign(body.begin(), body.end());
    const wire::Bytes own(state.request);
    switch (verb) {
        case wire::Verb::kOpenSession:
            take(state, wire::parse_open_session(own));
            break;
        case wire::Verb::kHeartbeat:
            take(state, wire::parse_heartbeat(own));
            break;
        case wire::Verb::kCloseSession:
        case wire::Verb::kStats:
            take_prefix(state, own);
            break;
        case wire::Verb::kMount:
            take(state, wire::parse_mount(own));
            break;
        case wire::Verb::kUnmount:
        case wire::Verb::kDrain:
        case wire::Verb::kSegments:
            take(state, wire::parse_segment_ids(own));
            break;
        case wire::Verb::kExists:
        case wire::Verb::kMatchPrefix:
        case wire::Verb::kLookup:
        case wire::Verb::kRemove:
        case wire::Verb::kTouch:
        case wire::Verb::kRelease:
        case wire::Verb::kWhy:
            take(state, wire::parse_keys_request(own));
            break;
        case wire::Verb::kPutStart:
            take(state, wire::parse_put_start(own));
            break;
        case wire::Verb::kPutEnd:
            take(state, wire::parse_put_end(own));
            break;
        case wire::Verb::kPutRevoke:
            take(state, wire::parse_put_revoke(own));
            break;
        case wire::Verb::kList:
            take(state, wire::parse_list(own));
            break;
        case wire::Verb::kReport:
            take(state, wire::parse_report(own));
            break;
        case wire::Verb::kInventory:
            take(state, wire::parse_inventory(own));
            break;
        case wire::Verb::kInspect:
            take(state, wire::parse_inspect(own));
            break;
        case wire::Verb::kCreateCopyTask:
        case wire::Verb::kCreateMoveTask:
            take(state, wire::parse_create_task(own));
            break;
        case wire::Verb::kQueryTask:
            take(state, wire::parse_query_task(own));
            break;
        case wire::Verb::kHoldings:
            take(state, wire::parse_holdings(own));
            break;
        case wire::Verb::kTombstones:
            take(state, wire::parse_tombstones_request(own));
            break;
        case wire::Verb::kHello:
        case wire::Verb::kRetire:
        case wire::Verb::kCopy:
        case wire::Verb::kRead:
        case wire::Verb::kWrite:
        case wire::Verb::kPing:
        case wire::Verb::kMap:
        case wire::Verb::kOpen:
        case wire::Verb::kClose:
        case wire::Verb::kTransferRead:
        case wire::Verb::kTransferWrite:
        case wire::Verb::kNotify:
        case wire::Verb::kFirstBuffer:
            state.finish(wire::Status::kNotSupported,
                         std::string("the state machine does not answer ") + wire::verb_name(verb));
            break;
    }
    return command;
}

}  // namespace mooncake::metadata
