#include "net/prober.h"

#include <utility>

#include "net/connection.h"
#include "net/endpoint.h"

namespace mooncake::net {

namespace {

// One probe; all on the loop's thread. Whatever comes first decides.
class Probe : public std::enable_shared_from_this<Probe> {
  public:
    Probe(std::string endpoint, Prober::Ended ended)
        : endpoint_(std::move(endpoint)), ended_(std::move(ended)) {}

    void start(EventLoop& loop, const Endpoint& endpoint, wire::Buffer hello);
    void end(const ProbeAnswer& answer) {
        if (const auto connection = std::exchange(connection_, nullptr)) connection->close("probed");
        if (const auto ended = std::exchange(ended_, nullptr)) ended(answer);
    }
    const std::string& endpoint() const { return endpoint_; }

  private:
    const std::string endpoint_;
    Prober::Ended ended_;
    std::shared_ptr<Connection> connection_;
};

class ProbeHandler final : public ConnectionHandler {
  public:
    explicit ProbeHandler(std::shared_ptr<Probe> probe) : probe_(std::move(probe)) {}
    void on_frame(Connection&, const wire::FrameHeader& header, wire::Bytes body) override {
        const std::string& endpoint = probe_->endpoint();
        const bool is_answer = header.verb == wire::Verb::kHello && header.is_reply();
        if (is_answer && !wire::ok(header.status)) {
            return probe_->end({ProbeResult::kDeclined,
                                endpoint + " declined a hello: " + wire::status_name(header.status),
                                {}});
        }
        const auto welcome = is_answer ? wire::parse_welcome(body) : std::nullopt;
        if (!welcome) {
            return probe_->end(
                {ProbeResult::kFailed, endpoint + " answered a hello with something else", {}});
        }
        probe_->end({ProbeResult::kWelcomed, "", welcome->process});
    }
    // A node whose connections are all taken closes at once, and lives.
    void on_close(Connection&, std::string_view reason) override {
        probe_->end({ProbeResult::kFailed,
                     probe_->endpoint() + " did not answer a hello: " + std::string(reason),
                     {}});
    }

  private:
    const std::shared_ptr<Probe> probe_;
};

void Probe::start(EventLoop& loop, const Endpoint& endpoint, wire::Buffer hello) {
    const auto self = shared_from_this();
    loop.call_after(kProbeTimeoutMs, [self] {
        self->end({ProbeResult::kFailed,
                   self->endpoint_ + " did not answer within " + std::to_string(kProbeTimeoutMs) + " ms",
                   {}});
    });
    ConnectionLimits limits;
    limits.hello_timeout_ms = kProbeTimeoutMs;
    limits.body_bytes_max = wire::kHelloBytesMax;
    connect(loop, endpoint.host, endpoint.port, kProbeTimeoutMs, limits, std::make_unique<ProbeHandler>(self),
            [self, hello = std::move(hello)](std::shared_ptr<Connection> connection, const std::string& why,
                                             bool was_refused) {
                if (!connection) {
                    return self->end({was_refused ? ProbeResult::kRefused : ProbeResult::kFailed, why, {}});
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

Prober::Prober(const wire::Hello& hello) : hello_frame_(hello_frame(hello)) {}

Prober::~Prober() { stop(); }

void Prober::probe(const std::string& text, Ended ended) {
    const auto endpoint = parse_endpoint(text);
    if (!endpoint) return ended({ProbeResult::kFailed, "'" + text + "' is not tcp://host:port", {}});
    const auto probe = std::make_shared<Probe>(text, std::move(ended));
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
    if (!is_posted) probe->end({ProbeResult::kFailed, text + ": the prober has stopped", {}});
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
