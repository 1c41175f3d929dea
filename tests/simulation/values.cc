#include "values.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "random.h"

namespace simulation {

const std::string& Values::make(const std::string& key, std::uint64_t bytes) {
    const std::uint64_t number = ++last_;
    Random random(number);
    std::string value((bytes + 7) / 8 * 8, '\0');
    for (std::size_t at = 0; at < value.size(); at += 8) {
        const std::uint64_t word = at == 0 ? number : random.next();
        std::memcpy(value.data() + at, &word, 8);
    }
    value.resize(bytes);
    if (bytes < 8) short_[key].push_back(number);
    return values_.emplace(number, std::pair(key, std::move(value))).first->second.second;
}

std::uint64_t Values::find(const std::string& key, std::string_view bytes) const {
    if (bytes.size() < 8) {
        const auto found = short_.find(key);
        if (found == short_.end()) return 0;
        for (const auto number : found->second) {
            if (values_.at(number).second == bytes) return number;
        }
        return 0;
    }
    std::uint64_t number = 0;
    std::memcpy(&number, bytes.data(), 8);
    const auto found = values_.find(number);
    if (found == values_.end() || found->second.first != key || found->second.second != bytes) return 0;
    return number;
}

std::string Buffers::take(std::size_t bytes) {
    constexpr std::size_t kMarkEvery = 512;
    constexpr std::size_t kMarkBytes = 8;
    std::string buffer;
    if (!spare_.empty()) {
        buffer = std::move(spare_.back());
        spare_.pop_back();
    }
    if (buffer.size() < bytes) buffer.resize(bytes);
    for (std::size_t at = 0; at < bytes; at += kMarkEvery) {
        std::memset(buffer.data() + at, 0xDD, std::min(kMarkBytes, bytes - at));
    }
    return buffer;
}

void Buffers::give_back(std::string buffer) { spare_.push_back(std::move(buffer)); }

}  // namespace simulation
