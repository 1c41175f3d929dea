// A transfer engine just below its sockets: peers whose frames are well-formed, damaged or arbitrary, at the
// real handler, with memory of which only a part is registered. Nothing but what is registered is ever
// written, a read's answer points nowhere else, and a hold ends with its connection.
//
// An input is a list of events: u8 what, then what it needs. Addresses are offsets into the memory here, so
// that an input means the same in every process.
#include <array>

#include "fake_connection.h"
#include "transfer/server.h"

namespace {

using namespace mooncake;
using fuzz::Input;
using fuzz::packed;
using fuzz::Script;
using wire::MemoryRange;
using wire::Verb;

constexpr std::size_t kPeers = 2;
constexpr std::size_t kEventsMax = 200;
constexpr std::size_t kMemoryBytes = 8192;
constexpr std::size_t kPartBytes = 1024;  // what is registered and withdrawn at a time
constexpr std::uint8_t kUntouched = 0xEE;

enum Event : std::uint8_t {
    kConnect,
    kRegister,
    kWithdraw,
    kRead,
    kWrite,
    kNotify,
    kAsk,
    kBytes,
    kTake,
    kGone,
    kEvents
};

wire::Buffer frame(Verb verb, wire::Bytes body) {
    wire::FrameHeader header;
    header.verb = verb;
    header.request_id = 1;
    wire::Buffer buffer;
    const std::size_t start = wire::begin_frame(buffer, header);
    wire::Writer(buffer).bytes(body);
    wire::finish_frame(buffer, start);
    return buffer;
}

wire::Buffer hello() {
    wire::Hello said;
    said.role = wire::Role::kEngine;
    return frame(Verb::kHello, packed([&](wire::Writer& writer) { wire::encode(said, writer); }));
}

class World {
  public:
    World() : served_(std::make_shared<transfer::Served>()) {
        served_->software = "fuzz";
        memory_.fill(kUntouched);
    }
    ~World() {
        for (auto& peer : peers_) end(peer);
        for (std::size_t part = 0; part < kMemoryBytes / kPartBytes; ++part) withdraw(part);
        REQUIRE(served_->registry->size() == 0);
        check_untouched();
    }

    void step(Input& input) {
        const auto event = static_cast<Event>(input.below(kEvents));
        auto& peer = peers_[input.below(kPeers)];
        switch (event) {
            case kConnect:
                end(peer);
                peer = std::make_shared<fuzz::FakeConnection>(
                    nullptr, [this](const net::Outgoing& sent) { check_answer(sent); });
                peer->set_handler(transfer::engine_connection(served_));
                if (input.flag()) peer->feed(hello());
                break;
            case kRegister:
                enroll(input.below(kMemoryBytes / kPartBytes));
                break;
            case kWithdraw:
                // Who touches it would be waited for.
                for (auto& each : peers_) end(each);
                withdraw(input.below(kMemoryBytes / kPartBytes));
                break;
            case kRead:
            case kWrite:
                transfer(peer, event == kWrite, input);
                break;
            case kNotify: {
                const auto name = wire::as_text(input.chunk());
                const auto message = wire::as_text(input.chunk());
                feed(peer, frame(Verb::kNotify, packed([&](wire::Writer& writer) {
                                     wire::encode(wire::Notice{name, message}, writer);
                                 })));
                break;
            }
            case kAsk:
                feed(peer, frame(input.flag() ? Verb::kPing : Verb::kFirstBuffer, {}));
                break;
            case kBytes:
                feed(peer, input.chunk());
                break;
            case kTake:
                if (peer) peer->take_sent();
                if (input.flag()) static_cast<void>(served_->notices.take());
                break;
            default:
                end(peer);
        }
        check_untouched();
    }

  private:
    void feed(const fuzz::FakePtr& peer, wire::Bytes bytes) {
        if (peer && !peer->is_over()) peer->feed(bytes);
    }
    void end(const fuzz::FakePtr& peer) {
        if (peer) peer->end();
    }
    std::uint64_t at(std::size_t offset) {
        return reinterpret_cast<std::uint64_t>(memory_.data()) + offset;
    }

    void enroll(std::size_t part) {
        std::string why;
        const auto status =
            served_->registry->add({at(part * kPartBytes), kPartBytes}, transfer::RangeKind::kRegistered, why);
        REQUIRE(wire::ok(status) != is_registered_[part]);
        is_registered_[part] = was_registered_[part] = true;
    }
    void withdraw(std::size_t part) {
        std::string why;
        const auto status =
            served_->registry->withdraw(at(part * kPartBytes), transfer::RangeKind::kRegistered, why);
        REQUIRE(wire::ok(status) == is_registered_[part]);
        is_registered_[part] = false;
    }

    void transfer(const fuzz::FakePtr& peer, bool is_write, Input& input) {
        std::vector<MemoryRange> ranges;
        std::uint64_t bytes = 0;
        for (std::size_t count = input.below(4); count > 0; --count) {
            ranges.push_back({at(0) + input.u16() % (kMemoryBytes + 64), input.u16() % (3 * kPartBytes)});
            bytes += ranges.back().length;
        }
        auto whole = frame(is_write ? Verb::kTransferWrite : Verb::kTransferRead,
                           packed([&](wire::Writer& writer) { wire::encode_transfer(ranges, writer); }));
        if (is_write) whole.insert(whole.end(), input.flag() ? bytes : bytes / 2, std::uint8_t{0x11});
        feed(peer, whole);
    }

    // What never was registered was never written.
    void check_untouched() const {
        for (std::size_t i = 0; i < kMemoryBytes; ++i) {
            if (!was_registered_[i / kPartBytes]) REQUIRE(memory_[i] == kUntouched);
        }
    }
    void check_answer(const net::Outgoing& sent) {
        for (const iovec& piece : sent.payload) {
            const auto begin = reinterpret_cast<std::uint64_t>(piece.iov_base);
            REQUIRE(begin >= at(0) && begin + piece.iov_len <= at(kMemoryBytes) && piece.iov_len > 0);
            for (std::uint64_t i = begin; i < begin + piece.iov_len; ++i) {
                REQUIRE(is_registered_[(i - at(0)) / kPartBytes]);
            }
        }
    }

    const std::shared_ptr<transfer::Served> served_;
    std::array<fuzz::FakePtr, kPeers> peers_;
    std::array<std::uint8_t, kMemoryBytes> memory_{};
    std::array<bool, kMemoryBytes / kPartBytes> is_registered_{};
    std::array<bool, kMemoryBytes / kPartBytes> was_registered_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Input input({data, size});
    World world;
    for (std::size_t i = 0; i < kEventsMax && !input.empty(); ++i) world.step(input);
    return 0;
}

std::vector<std::pair<std::string, wire::Buffer>> fuzz::seeds() {
    const auto begun = [] {
        return Script().u8(kConnect).u8(0).u8(1).u8(kRegister).u8(0).u8(2).u8(kRegister).u8(0).u8(3);
    };
    return {
        {"write", begun().u8(kWrite).u8(0).u8(2).u16(2048).u16(100).u16(3000).u16(200).u8(1)},
        {"half_a_write", begun().u8(kWrite).u8(0).u8(1).u16(2048).u16(100).u8(0).u8(kGone).u8(0)},
        {"write_outside", begun().u8(kWrite).u8(0).u8(2).u16(2048).u16(100).u16(0).u16(200).u8(1)},
        {"read", begun().u8(kRead).u8(0).u8(1).u16(2048).u16(2048).u8(kTake).u8(0).u8(0)},
        {"read_outside", begun().u8(kRead).u8(0).u8(1).u16(2049).u16(2048)},
        {"withdraw", begun().u8(kRead).u8(0).u8(1).u16(2048).u16(100).u8(kWithdraw).u8(0).u8(2)},
        {"notify", begun().u8(kNotify).u8(0).chunk(wire::Buffer(3, 'n')).chunk(wire::Buffer(9, 'm'))},
        {"ask", begun().u8(kAsk).u8(0).u8(0).u8(kAsk).u8(0).u8(1)},
        {"no_hello", Script().u8(kConnect).u8(0).u8(0).u8(kBytes).u8(0).chunk(wire::Buffer(40, 0))},
    };
}
