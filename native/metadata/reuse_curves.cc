#include "metadata/reuse_curves.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mooncake::metadata {

namespace {

constexpr int kFirstOctave = 6;
// What a class is believed to be like before it was seen: as all are together, with so many accesses.
constexpr double kPriorAccesses = 30;
// Classes count when they promise so many times the hits of LRU.
constexpr double kGainMin = 1.05;

}  // namespace

std::size_t ReuseCurves::age_index(std::uint64_t age) {
    if (age < (1u << kFirstOctave)) return 0;
    const int octave = static_cast<int>(std::bit_width(age)) - 1;
    const auto quarter = static_cast<std::size_t>(age >> (octave - 2)) & 3;
    return std::min(static_cast<std::size_t>(octave - kFirstOctave) * 4 + quarter, kAges - 1);
}

double ReuseCurves::age_begin(std::size_t index) {
    if (index == 0) return 0;
    return std::ldexp(1.0 + static_cast<double>(index % 4) / 4, kFirstOctave + static_cast<int>(index / 4));
}

void ReuseCurves::fade(double factor) {
    for (auto& counts : counts_) {
        if (counts.began == 0) continue;
        counts.began *= factor;
        for (auto& value : counts.came) value *= static_cast<float>(factor);
        for (auto& value : counts.watched) value *= static_cast<float>(factor);
    }
}

// The upper hull of a class's curve, as pieces of falling worth.
void ReuseCurves::add_pieces(std::size_t kind, const Counts& all, double all_began,
                             std::vector<Piece>& pieces) {
    struct Vertex {
        double age, hits, room;
    };
    const Counts& counts = counts_[kind];
    const double rate = counts.began / all_began;
    const double prior = kPriorAccesses / all_began;
    std::vector<Vertex> hull{{0, 0, 0}};
    double left = 1;  // the share that has not come again
    double hits = 0;
    double room = 0;
    for (std::size_t i = 0; i < kAges; ++i) {
        const double watched = counts.watched[i] + prior * all.watched[i];
        const double came = counts.came[i] + prior * all.came[i];
        const double width = age_begin(i + 1) - age_begin(i);
        // The chance to come within the step, if it comes as often as seen at every moment of it.
        const double chance = watched > 0 ? 1 - std::exp(-came * width / watched) : 0;
        hits += left * chance;
        room += width * left * (1 - chance / 2);
        left *= 1 - chance;
        hits_by_age_[i] += rate * hits;
        room_by_age_[i] += rate * room;
        if (came == 0) continue;
        const Vertex next{age_begin(i + 1), hits, room};
        const auto is_below = [&](const Vertex& a, const Vertex& b) {
            return (b.hits - a.hits) * (next.room - b.room) <= (next.hits - b.hits) * (b.room - a.room);
        };
        while (hull.size() > 1 && is_below(hull[hull.size() - 2], hull.back())) hull.pop_back();
        hull.push_back(next);
    }
    reachable_hits_ += rate * hits;
    for (std::size_t i = 1; i < hull.size(); ++i) {
        const double more = hull[i].hits - hull[i - 1].hits;
        if (more > 0) {
            pieces.push_back({kind, hull[i].age, rate * more, rate * (hull[i].room - hull[i - 1].room)});
        }
    }
}

void ReuseCurves::divide(double keys_that_fit) {
    Counts all;
    for (const auto& counts : counts_) {
        all.began += counts.began;
        for (std::size_t i = 0; i < kAges; ++i) {
            all.came[i] += counts.came[i];
            all.watched[i] += counts.watched[i];
        }
    }
    stays_ = {};
    longest_ = expected_hits_ = lru_hits_ = reachable_hits_ = 0;
    hits_by_age_ = room_by_age_ = {};
    if (all.began == 0) return;
    std::vector<Piece> pieces;
    for (std::size_t kind = 0; kind < kClasses; ++kind) {
        if (counts_[kind].began > 0) add_pieces(kind, all, all.began, pieces);
    }
    // Pieces of one class are in order already, and stay so.
    std::stable_sort(pieces.begin(), pieces.end(),
                     [](const Piece& a, const Piece& b) { return a.worth() > b.worth(); });
    double left = keys_that_fit;
    for (const auto& piece : pieces) {
        Stay& stay = stays_[piece.kind];
        const double share = std::min(1.0, left / piece.room);
        stay.shorter = share == 1 ? piece.until : stay.longer;
        stay.longer = piece.until;
        stay.share = share;
        expected_hits_ += share * piece.hits;
        longest_ = std::max(longest_, piece.until);
        left -= piece.room;
        if (left <= 0) break;
    }
    lru_hits_ = hits_of_lru(keys_that_fit);
    // Where classes promise next to nothing, chance decides which one seems better.
    if (expected_hits_ >= kGainMin * lru_hits_) return;
    stays_ = {};
    longest_ = 0;
}

double ReuseCurves::hits_of_lru(double keys_that_fit) const {
    for (std::size_t i = 0; i < kAges; ++i) {
        if (room_by_age_[i] < keys_that_fit) continue;
        const double hits = i == 0 ? 0 : hits_by_age_[i - 1];
        const double room = i == 0 ? 0 : room_by_age_[i - 1];
        return hits + (hits_by_age_[i] - hits) * (keys_that_fit - room) / (room_by_age_[i] - room);
    }
    return hits_by_age_.back();
}

}  // namespace mooncake::metadata
