/* XRT's C functions let C++ exceptions out of them in places (accel_xrt_self.h says where), which C cannot
 * catch. */
#include <cstddef>
#include <cstdio>
#include <exception>

extern "C" int accel_xrt_try(int (*call)(void *, char *), void *context, char *error, std::size_t error_bytes)
{
    try {
        return call(context, error);
    } catch (const std::exception &e) {
        std::snprintf(error, error_bytes, "XRT: %s", e.what());
    } catch (...) {
        std::snprintf(error, error_bytes, "XRT threw an exception that does not say what it is");
    }
    return -1;
}
