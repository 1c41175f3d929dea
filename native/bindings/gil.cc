// Taking the GIL, compiled without exceptions: see gil.h.
#include "bindings/gil.h"

#include <pthread.h>
#include <unistd.h>

namespace mooncake::bindings {
namespace {

void stay(void*) {
    for (;;) ::pause();
}

}  // namespace

void take_gil(PyThreadState* state) {
    pthread_cleanup_push(stay, nullptr);
    PyEval_RestoreThread(state);
    pthread_cleanup_pop(0);
}

void take_gil(PyGILState_STATE& state) {
    pthread_cleanup_push(stay, nullptr);
    state = PyGILState_Ensure();
    pthread_cleanup_pop(0);
}

}  // namespace mooncake::bindings
