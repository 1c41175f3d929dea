// A Python object's bytes, borrowed for the length of one call.
//
// Owns the buffer's export and its release. Must not know what the bytes mean.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mooncake::bindings {

/// The contiguous bytes of any object with the buffer protocol. While it lives, a bytearray cannot be
/// resized. Made and destroyed with the GIL held; the bytes may be used without it.
class BorrowedBuffer {
  public:
    enum class Access { kRead, kWrite };

    /// Raises Python's TypeError or BufferError for an object without such bytes.
    BorrowedBuffer(nanobind::handle object, Access access) {
        const int flags = access == Access::kWrite ? PyBUF_WRITABLE : PyBUF_SIMPLE;
        if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nanobind::python_error();
    }
    ~BorrowedBuffer() { PyBuffer_Release(&view_); }
    BorrowedBuffer(const BorrowedBuffer&) = delete;
    BorrowedBuffer& operator=(const BorrowedBuffer&) = delete;

    [[nodiscard]] size_t size() const { return static_cast<size_t>(view_.len); }
    [[nodiscard]] const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
    /// Only for Access::kWrite.
    [[nodiscard]] uint8_t* writable() const { return static_cast<uint8_t*>(view_.buf); }

  private:
    Py_buffer view_{};
};

}  // namespace mooncake::bindings
