#include "master/request_metrics.h"

#include <algorithm>

namespace mooncake::master {

void RequestMetrics::record(wire::Verb verb, wire::Status status, std::uint64_t took_us) {
    Counters& counters = verbs_[static_cast<std::size_t>(verb) % kVerbs];
    const auto edge = std::lower_bound(kLatencyEdgesUs.begin(), kLatencyEdgesUs.end(), took_us);
    const auto bucket = static_cast<std::size_t>(edge - kLatencyEdgesUs.begin());
    counters.buckets[bucket].fetch_add(1, std::memory_order_relaxed);
    counters.sum_us.fetch_add(took_us, std::memory_order_relaxed);
    if (!wire::ok(status)) counters.refused.fetch_add(1, std::memory_order_relaxed);
}

std::vector<RequestMetrics::Histogram> RequestMetrics::histograms() const {
    std::vector<Histogram> histograms;
    for (std::size_t i = 0; i < kVerbs; ++i) {
        const Counters& counters = verbs_[i];
        Histogram histogram;
        histogram.verb = wire::verb_name(static_cast<wire::Verb>(i));
        histogram.sum_us = counters.sum_us.load(std::memory_order_relaxed);
        histogram.refused = counters.refused.load(std::memory_order_relaxed);
        for (std::size_t bucket = 0; bucket < histogram.buckets.size(); ++bucket) {
            histogram.buckets[bucket] = counters.buckets[bucket].load(std::memory_order_relaxed);
            histogram.count += histogram.buckets[bucket];
        }
        if (histogram.verb != nullptr && histogram.count > 0) histograms.push_back(histogram);
    }
    return histograms;
}

}  // namespace mooncake::master
