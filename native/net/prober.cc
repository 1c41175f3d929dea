#include "net/prober.h"

#include <utility>

#include "net/connection.h"
#include "net/endpoint.h"

namespace mooncake::net {

namespace {

// One probe; all on the loop's thread. Whatever comes first decides.
class Probe : public std::enable_shared_from_this<Probe> {
  public:
    Probe(std::uint64_t subject, Prober::Ended ended) : subject_(subject), ended_(std::move(ended)) {}

    void start(EventLoop& loop, const Endpoint& endpoint, wire::Buffer hello);
    void end(ProbeResult result) {
        if (const auto connection = std::exchange(connection_, nullptr)) connection->close("probed");
        if (const auto ended = std::exchange(ended_, nullptr)) ended(subject_, result);
    }

  private:
    const std::uint64_t subject_;
    Prober::Ended ended_;
    std::shared_ptr<Connection> connection_;
};

class ProbeHandler final : public ConnectionHandler {
  public:
    explicit ProbeHandler(std::shared_ptr<Probe> probe) : probe_(std::move(probe)) {}
    void on_frame(Connection&, const wire::FrameHeader& header, wire::Bytes) override {
        const bool is_answer = header.verb == wire::Verb::kHello && header.is_reply();
        const auto answer = wire::ok(header.status) ? ProbeResult::kWelcomed : ProbeResult::kDeclined;
        probe_->end(is_answer ? answer : ProbeResult::kFailed);
    }
    // A node whose connections are all taken closes at once, and lives.
    void on_close(Connection&, std::string_view) override { probe_->end(ProbeResult::kFailed); }

  private:
    const std::shared_ptr<Probe> probe_;
};

void Probe::start(EventLoop& loop, const Endpoint& endpoint, wire::Buffer hello) {
    const auto self = shared_from_this();
    loop.call_after(kProbeTimeoutMs, [self] { self->end(ProbeResult::kFailed); });
    ConnectionLimits limits;
    limits.hello_timeout_ms = kProbeTimeoutMs;
    limits.body_bytes_max = wire::kHelloBytesMax;
    connect(loop, endpoint.host, endpoint.port, kProbeTimeoutMs, limits, std::make_unique<ProbeHandler>(self),
            [self, hello = std::move(hello)](std::shared_ptr<Connection> connection, const std::string&,
                                             bool was_refused) {
                if (!connection) {
                    return self->end(was_refused ? ProbeResult::kRefused : ProbeResult::kFailed);
                }
                connection->send(hello);
                if (self->ended_) {
                    self->connection_ = std::move(connection);
                } else {
                    connection->close("probed");
                }
            });
}

wire::Buffer hello_frame(const wire::Hello& hello) {
    wire::FrameHeader header;
    header.verb = wire::Verb::kHello;
    header.request_id = 1;
    wire::Buffer frame;
    const std::size_t start = wire::begin_frame(frame, header);
    wire::Writer writer(frame);
    wire::encode(hello, writer);
    wire::finish_frame(frame, start);
    return frame;
}

}  // namespace

Prober::Prober(const wire::Hello& hello, Ended ended)
    : hello_frame_(hello_frame(hello)), ended_(std::move(ended)) {}

Prober::~Prober() { stop(); }

void Prober::probe(std::uint64_t subject, const std::string& text) {
    const auto endpoint = parse_endpoint(text);
    if (!endpoint) return ended_(subject, ProbeResult::kFailed);
    const auto probe = std::make_shared<Probe>(subject, ended_);
    bool is_posted = false;
    {
        const std::lock_guard guard(mutex_);
        if (!is_stopped_) {
            if (!loops_) loops_ = std::make_unique<LoopThreads>("mc-probe", 1);
            EventLoop& loop = loops_->at(0);
            is_posted = loop.try_post([probe, &loop, endpoint = *endpoint, hello = hello_frame_]() mutable {
                probe->start(loop, endpoint, std::move(hello));
            });
        }
    }
    if (!is_posted) probe->end(ProbeResult::kFailed);
}

void Prober::stop() {
    std::unique_ptr<LoopThreads> loops;
    {
        const std::lock_guard guard(mutex_);
        is_stopped_ = true;
        loops = std::move(loops_);
    }
    if (loops) loops->stop();
}

}  // namespace mooncake::net
