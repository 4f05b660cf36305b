// The services of libxrt_coreutil that a driver needs and that exist in C++ only. XRT's private headers are
// not in libxrt-dev; these two declarations have no layout to get wrong.
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

struct axlf;

namespace xrt_core
{
class device
{
  public:
    void register_axlf(const axlf *);
};
class system
{
  public:
    unsigned int get_device_id(const std::string &name) const;
};
std::shared_ptr<device> get_userpf_device(void *handle, unsigned int id);
} // namespace xrt_core

extern "C" int device_named(const char *name);

// XRT's own knows no PCIe address. Defined in this library, it is what the prebuilt glue's table of virtual
// functions finds, so that xrtDeviceOpenByBDF works.
unsigned int xrt_core::system::get_device_id(const std::string &name) const
{
    const int index = device_named(name.c_str());
    if (index < 0)
        throw std::runtime_error("no such device: " + name);
    return static_cast<unsigned int>(index);
}

using core_ptr = std::shared_ptr<xrt_core::device>;

// Makes XRT's device object of a handle. XRT itself keeps a weak pointer only: to be released at close. NULL:
// it threw.
extern "C" void *glue_register(void *handle, unsigned int id)
{
    try {
        return new core_ptr(xrt_core::get_userpf_device(handle, id));
    } catch (const std::exception &) {
        return nullptr;
    }
}

extern "C" void glue_release(void *core)
{
    delete static_cast<core_ptr *>(core);
}

// Makes the xclbin known to XRT: it finds compute units by it. 0, or -1: it threw.
extern "C" int glue_axlf(void *core, const axlf *top)
{
    try {
        (*static_cast<core_ptr *>(core))->register_axlf(top);
        return 0;
    } catch (const std::exception &) {
        return -1;
    }
}
