// SPDX-License-Identifier: Apache-2.0
#include "settings.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <sstream>

namespace fake {
namespace {

std::uint64_t number(const std::string& text, const std::string& where) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    stop_test("FAKE_CUDA: " + where + " needs a number");
  return value;
}

void set(Settings& to, const std::string& key, const std::string& value, const std::string& pair) {
  if (key == "fail") {
    const auto first = value.find(':'), second = value.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos)
      stop_test("FAKE_CUDA: " + pair + ": write fail=FUNCTION:NTH:STATUS");
    to.failures.push_back(
        {value.substr(0, first),
         static_cast<unsigned>(number(value.substr(first + 1, second - first - 1), pair)),
         static_cast<int>(number(value.substr(second + 1), pair))});
    return;
  }
  if (key == "leaks") {
    if (value != "fail" && value != "ignore")
      stop_test("FAKE_CUDA: " + pair + ": write leaks=fail or leaks=ignore");
    to.leaks_fail = value == "fail";
    return;
  }
  const std::uint64_t given = number(value, pair);
  if (key == "gpus") {
    to.gpus = static_cast<int>(given);
  } else if (key == "first") {
    to.first = static_cast<int>(given);
  } else if (key == "host") {
    to.host = static_cast<int>(given);
  } else if (key == "init") {
    to.init = static_cast<int>(given);
  } else if (key == "helper") {
    to.helper = static_cast<int>(given);
  } else if (key == "mode") {
    to.mode = static_cast<int>(given);
  } else if (key == "seed") {
    to.seed = given;
  } else if (key == "delay_us") {
    to.delay_us = static_cast<unsigned>(given);
  } else if (key == "hang_s") {
    to.hang_s = static_cast<unsigned>(given);
  } else if (key == "piece" && given != 0) {
    to.piece = given;
  } else if (key == "memory_mib") {
    to.memory = given << 20;
  } else {
    to.permission(key) = given != 0;
  }
}

}  // namespace

void stop_test(const std::string& message) {
  std::fprintf(stderr, "fake CUDA: %s\n", message.c_str());
  std::abort();
}

std::atomic<bool>& Settings::permission(const std::string& what) {
  if (what == "peers") return peers;
  if (what == "export") return can_export;
  if (what == "ipc") return ipc;
  if (what == "vmm") return vmm;
  stop_test("there is no setting " + what);
}

Settings& settings() {
  // Never destroyed: the fake's thread lives until the process ends.
  static Settings& all = *[] {
    auto* const read = new Settings;
    const char* const text = std::getenv("FAKE_CUDA");
    std::istringstream pairs(text == nullptr ? "" : text);
    for (std::string pair; std::getline(pairs, pair, ',');) {
      const auto equals = pair.find('=');
      if (equals == std::string::npos) stop_test("FAKE_CUDA: " + pair + " is not KEY=VALUE");
      set(*read, pair.substr(0, equals), pair.substr(equals + 1), pair);
    }
    return read;
  }();
  return all;
}

}  // namespace fake
