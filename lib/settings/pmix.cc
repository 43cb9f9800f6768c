// SPDX-License-Identifier: Apache-2.0
//
// A client of PMIx. Its library comes with the launcher and is looked up at run time. The types are
// those of the standard, versions 2 to 5, as far as they are needed.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include <rondo/error.h>

#include "base/interruption.h"
#include "lib/settings/environment.h"
#include "lib/settings/exchange.h"

namespace rondo::settings {
namespace pmix {
namespace {

using Status = int;  // 0: success
constexpr std::uint16_t type_string = 3;
constexpr std::uint8_t scope_global = 3;
constexpr const char* key = "rondo.meeting";
constexpr milliseconds pause{100};

struct Process {
  std::array<char, 256> name_space;
  std::uint32_t rank;
};
struct Value {
  std::uint16_t type;
  union {
    char* string;
    std::array<std::uint64_t, 8> room;  // not less than that of any version
  };
};
using Answer = void(Status, Value*, void*);

struct Library {
  Status (*init)(Process*, void*, std::size_t) = nullptr;
  Status (*finalize)(const void*, std::size_t) = nullptr;
  Status (*put)(std::uint8_t, const char*, Value*) = nullptr;
  Status (*commit)() = nullptr;
  Status (*get)(const Process*, const char*, const void*, std::size_t, Answer*, void*) = nullptr;
};

std::optional<Library> find_library() {
  void* const library = ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return std::nullopt;
  Library found;
  const auto look_up = [&](auto& function, const char* name) {
    function =
        reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  const bool whole = look_up(found.init, "PMIx_Init") && look_up(found.finalize, "PMIx_Finalize") &&
                     look_up(found.put, "PMIx_Put") && look_up(found.commit, "PMIx_Commit") &&
                     look_up(found.get, "PMIx_Get_nb");
  ::dlclose(library);  // it stays loaded
  return whole ? std::optional(found) : std::nullopt;
}

[[noreturn]] void fail(Errc code, const std::string& why) {
  throw Error(code, "the launcher's PMIx: " + why +
                        ". To join without PMIx, set RONDO_RENDEZVOUS=tcp://HOST:PORT and "
                        "RONDO_SECRET on all ranks");
}

class Pmix final : public Exchange {
 public:
  explicit Pmix(const Library& library) : library_(library) {
    if (const Status status = library_.init(&own_, nullptr, 0); status != 0)
      fail(Errc::rendezvous, fmt::format("PMIx_Init returned {}", status));
  }
  ~Pmix() override { library_.finalize(nullptr, 0); }

  void give(const std::string& text, base::TimePoint) override {
    std::string copy = text;
    Value value{};
    value.type = type_string;
    value.string = copy.data();
    if (const Status status = library_.put(scope_global, key, &value); status != 0)
      fail(Errc::rendezvous, fmt::format("PMIx_Put returned {}", status));
    if (const Status status = library_.commit(); status != 0)
      fail(Errc::rendezvous, fmt::format("PMIx_Commit returned {}", status));
  }

  // The local server asks the server of rank 0, which waits for the text or says that there is none
  // yet. An answer may still come after `until`.
  std::string take(base::TimePoint until) override {
    Process root = own_;
    root.rank = 0;
    std::unique_lock lock(mutex_);
    while (text_.empty()) {
      if (base::Clock::now() >= until)
        fail(Errc::deadline_exceeded,
             fmt::format("rank 0 has not given its address in time: it must connect, and "
                         "RONDO_RENDEZVOUS and RONDO_SECRET must be set on all ranks or on none{}",
                         status_ == 0 ? "" : fmt::format(" (PMIx_Get_nb: {})", status_)));
      if (!pending_) {
        if (status_ != 0)
          changed_.wait_until(lock, std::min(until, base::after(base::Clock::now(), pause)));
        pending_ = true;
        lock.unlock();
        const Status status = library_.get(&root, key, nullptr, 0, &Pmix::received, this);
        if (status != 0) received(status, nullptr, this);
        lock.lock();
      }
      base::wait_until(changed_, lock, until, [&] { return !pending_; });
    }
    return text_;
  }

 private:
  // On a thread of the library.
  static void received(Status status, Value* value, void* self) {
    auto& here = *static_cast<Pmix*>(self);
    const std::lock_guard lock(here.mutex_);
    here.status_ = status;
    if (status == 0 && value != nullptr && value->type == type_string && value->string != nullptr)
      here.text_ = value->string;
    here.pending_ = false;
    here.changed_.notify_all();
  }

  const Library library_;
  Process own_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool pending_ = false;
  Status status_ = 0;
  std::string text_;
};

}  // namespace
}  // namespace pmix

bool has_pmix() {
  return settings::variable("PMIX_NAMESPACE") && settings::variable("PMIX_RANK") &&
         pmix::find_library();
}

std::unique_ptr<Exchange> open_pmix() {
  const auto library = pmix::find_library();
  if (!library) pmix::fail(Errc::unsupported, "there is no usable libpmix.so.2");
  return std::make_unique<pmix::Pmix>(*library);
}

}  // namespace rondo::settings
