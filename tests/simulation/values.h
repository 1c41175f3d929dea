// The bytes of every put: made from its number alone, so that every byte of every hit can be checked.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace simulation {

class Values {
  public:
    // A value of its own for one put of this key.
    const std::string& make(const std::string& key, std::uint64_t bytes);
    // The put of this key that has exactly these bytes; 0 = none.
    std::uint64_t find(const std::string& key, std::string_view bytes) const;
    std::uint64_t puts() const { return last_; }

  private:
    std::uint64_t last_ = 0;
    std::map<std::uint64_t, std::pair<std::string, std::string>> values_;  // number: key, bytes
    std::map<std::string, std::vector<std::uint64_t>> short_;              // too short to name their number
};

// Memory that gets read into, used again. Marked all over, so that bytes which an earlier get left there are
// not taken for an answer.
class Buffers {
  public:
    std::string take(std::size_t bytes);
    void give_back(std::string buffer);

  private:
    std::vector<std::string> spare_;
};

}  // namespace simulation
