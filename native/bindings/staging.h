// Memory to receive values into before they are spread over pieces: touched once, used again.
//
// Memory that was never touched costs as much as the copy, so one block is kept when its user has done, up to
// kStagingBytesMax; whoever comes while it is in use has one of its own. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace mooncake::bindings {

inline constexpr std::size_t kStagingBytesMax = 64u << 20;

class Staging {
  public:
    explicit Staging(std::size_t bytes);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;

    std::uint8_t* data() const { return memory_.get(); }
    std::size_t capacity() const { return capacity_; }

  private:
    std::unique_ptr<std::uint8_t[]> memory_;
    std::size_t capacity_ = 0;
};

}  // namespace mooncake::bindings
