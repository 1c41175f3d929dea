#include "journal.h"

#include <algorithm>

#include "wire/control.h"
#include "wire/crc32c.h"
#include "wire/ids.h"

namespace simulation {

std::string id_text(std::uint64_t id) {
    return std::to_string(mooncake::wire::epoch_of(id)) + ":" +
           std::to_string(id & mooncake::wire::kCounterMax);
}

void Journal::note(std::uint64_t what, std::span<const std::uint8_t> bytes) {
    const auto sum = bytes.empty() ? 0U : mooncake::wire::crc32c(0, bytes.data(), bytes.size());
    const std::uint64_t mixed = mooncake::wire::mix64(what ^ (std::uint64_t{sum} << 32) ^ bytes.size());
    hash_ = mooncake::wire::mix64(hash_ ^ mixed ^ (world_.now_ms() << 20) ^ world_.step());
}

void Journal::line(const std::string& who, const std::string& what, const std::vector<std::string>& keys) {
    if (!keeps_lines_) return;
    lines_.push_back({world_.now_ms(), world_.step(), who + ": " + what, keys});
}

std::string Journal::story(std::string_view key, std::size_t lines_max) const {
    std::vector<const Line*> chosen;
    for (const Line& line : lines_) {
        const bool is_about = std::find(line.keys.begin(), line.keys.end(), key) != line.keys.end();
        if (is_about || line.keys.empty() || key.empty()) chosen.push_back(&line);
    }
    std::string text;
    const std::size_t first = chosen.size() > lines_max ? chosen.size() - lines_max : 0;
    if (first > 0) text += "(" + std::to_string(first) + " earlier lines left out)\n";
    for (std::size_t i = first; i < chosen.size(); ++i) {
        text += std::to_string(chosen[i]->at_ms) + " ms, step " + std::to_string(chosen[i]->step) + "  " +
                chosen[i]->text + "\n";
    }
    return text;
}

}  // namespace simulation
