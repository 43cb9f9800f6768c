// SPDX-License-Identifier: Apache-2.0
//
// torch's store as the place where the ranks of a group meet.
#pragma once

#include <openssl/rand.h>
#include <rondo/error.h>
#include <rondo/store.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "python/core/signals.h"
#include "python/torch/store_end.h"

namespace rondo::python {

// Waits for a key of torch's store. Returns false if it is not there by `until`. Calls look(),
// which may throw, at least ten times a second.
template <class Look>
bool await_key(c10d::Store& store, const std::string& key,
               std::chrono::steady_clock::time_point until, const Look& look) {
  using std::chrono::microseconds, std::chrono::milliseconds, std::chrono::steady_clock;
  auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(&store);
  // FileStore rounds a timeout to seconds. TCPStore writes two lines into the log when one passes.
  const auto plain = prefixed != nullptr ? prefixed->getUnderlyingNonPrefixStore() : nullptr;
  const bool polls = dynamic_cast<c10d::FileStore*>(plain.get()) != nullptr ||
                     dynamic_cast<c10d::TCPStore*>(plain.get()) != nullptr;
  // Grows with the time waited: ranks of a group come at about the same time.
  constexpr milliseconds longest{100};
  for (microseconds pause{50};; pause = std::min<microseconds>(longest, pause * 3 / 2)) {
    const auto now = steady_clock::now();
    const auto time =
        std::clamp(std::chrono::ceil<milliseconds>(until - now), milliseconds{1}, longest);
    try {
      if (!polls) store.wait({key}, time);
      if (!polls || store.check({key})) return true;
      std::this_thread::sleep_for(std::min<microseconds>(time, pause));
    } catch (const std::exception&) {
      if (steady_clock::now() < now + time) throw;
    }
    if (steady_clock::now() >= until) return false;
    look();
  }
}

// torch gives each group a prefix of its own. Never changes the store's timeout: other groups share
// the connection. Thread-bound. A store written in Python takes the GIL: callers do not hold it.
class TorchStore final : public Store {
 public:
  explicit TorchStore(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  void put(std::string_view key, std::string_view value) override {
    store_->set(std::string(key), std::string(value));
  }
  std::string get(std::string_view key, std::chrono::steady_clock::time_point deadline) override {
    const std::string name(key);
    const auto look = [] {
      if (handler_raises()) throw Error(Errc::aborted, "the program ended the call, as on Ctrl-C");
    };
    for (;;) {
      // One question to the store where the key is there.
      if (std::string value = compared(name).value_or(none); value != none) return value;
      if (!await_key(*store_, name, deadline, look))
        throw Error(Errc::deadline_exceeded,
                    "no rank has written " + name + " to the store of torch");
      if (!compares_) return store_->get_to_str(name);
    }
  }
  // All ranks have come; the next group makes a secret of its own.
  void remove(std::string_view key) override {
    store_->deleteKey(std::string(key));
    store_->deleteKey(secret_key);
  }

  // Returns the secret of the group, which its first rank makes. It is as safe as the store, which
  // has no authentication. A rank that dies while it joins leaves the secret, and later ranks use
  // it. A store written in Python may lack compareSet(): there rank 0 makes the secret.
  std::string secret(int rank, std::chrono::steady_clock::time_point deadline) {
    std::array<unsigned char, 32> random{};
    TORCH_CHECK(::RAND_bytes(random.data(), static_cast<int>(random.size())) == 1,
                "rondo: OpenSSL has no random bytes for the secret of the job");
    std::string own;
    for (const unsigned char byte : random)
      for (const int digit : {byte >> 4, byte & 15}) own += "0123456789abcdef"[digit];
    try {
      return store_->compareSet(secret_key, "", own);
    } catch (const std::exception&) {
      if (rank != 0) return get(secret_key, deadline);
      put(secret_key, own);
      return own;
    }
  }

  // Called at the end of the default group. torch's store may run in rank 0's process, and ends
  // with that rank's group. A rank that makes its next group before that would join in a store that
  // ends. So ranks other than 0 wait for the end of the store, or for a moment where it lives on.
  void leave(int rank) noexcept {
    const char* const of_agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
    auto* const prefixed = dynamic_cast<c10d::PrefixStore*>(store_.get());
    if (rank == 0 || prefixed == nullptr ||
        (of_agent != nullptr && std::string_view(of_agent) == "True"))
      return;
    try {
      const auto store = prefixed->getUnderlyingNonPrefixStore();
      if (const auto* const tcp = dynamic_cast<const c10d::TCPStore*>(store.get()))
        await_end(tcp->getHost(), tcp->getPort(), std::chrono::seconds{2});
    } catch (const std::exception&) {
    }
  }

 private:
  static constexpr const char *secret_key = "rondo-secret", *none = "no value";

  // Returns `none` where the key is not there: the store's get() would wait for it as long as the
  // store's own timeout. Nothing from a store written in Python that lacks the call.
  std::optional<std::string> compared(const std::string& key) {
    try {
      if (compares_) return store_->compareSet(key, none, none);
    } catch (const std::exception&) {
      compares_ = false;
    }
    return std::nullopt;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  bool compares_ = true;
};

}  // namespace rondo::python
