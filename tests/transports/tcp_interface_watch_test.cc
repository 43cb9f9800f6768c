// SPDX-License-Identifier: Apache-2.0
//
// Checks what the kernel says about interfaces. tests/hosts tests the watch with interfaces that go
// down.
#include "transports/connect/interface_watch.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sys/socket.h>

#include <cstring>

#include "catch.h"

namespace rondo::testing {
namespace {

using Bytes = std::vector<std::byte>;

template <class T>
void put(Bytes& bytes, const T& value) {
  const auto view = std::as_bytes(std::span(&value, 1));
  for (const std::byte one : view) bytes.push_back(one);
  bytes.resize((bytes.size() + 3) / 4 * 4);
}

void put_attribute(Bytes& bytes, unsigned short type, std::string_view text) {
  put(bytes, rtattr{static_cast<unsigned short>(sizeof(rtattr) + text.size()), type});
  const auto view = std::as_bytes(std::span(text));
  for (const std::byte one : view) bytes.push_back(one);
  bytes.resize((bytes.size() + 3) / 4 * 4);
}

Bytes message(unsigned short type, unsigned flags, std::string_view name,
              unsigned char family = AF_UNSPEC) {
  ifinfomsg interface {};
  interface.ifi_family = family;
  interface.ifi_flags = flags;
  Bytes body;
  put(body, interface);
  put_attribute(body, IFLA_QDISC, std::string_view("tbf\0", 4));
  put_attribute(body, IFLA_IFNAME, name);
  nlmsghdr header{};
  header.nlmsg_len = static_cast<unsigned>(sizeof header + body.size());
  header.nlmsg_type = type;
  Bytes whole;
  put(whole, header);
  for (const std::byte one : body) whole.push_back(one);
  return whole;
}

constexpr std::string_view eth1("eth1\0", 5);
using News = std::vector<connect::InterfaceNews>;

}  // namespace

TEST_CASE("what the kernel says of an interface") {
  using State = connect::InterfaceState;
  CHECK(connect::decode_interface_news(message(RTM_NEWLINK, IFF_UP | IFF_RUNNING, eth1)) ==
        News{{"eth1", State::up}});
  CHECK(connect::decode_interface_news(message(RTM_NEWLINK, IFF_UP, eth1)) ==
        News{{"eth1", State::no_carrier}});
  CHECK(connect::decode_interface_news(message(RTM_NEWLINK, 0, eth1)) ==
        News{{"eth1", State::down}});
  CHECK(connect::decode_interface_news(message(RTM_DELLINK, IFF_UP | IFF_RUNNING, eth1)) ==
        News{{"eth1", State::gone}});
  Bytes several = message(RTM_NEWLINK, 0, eth1);
  const Bytes other = message(RTM_NEWADDR, 0, eth1),
              last = message(RTM_DELLINK, 0, std::string_view("lo\0", 3));
  several.insert(several.end(), other.begin(), other.end());
  several.insert(several.end(), last.begin(), last.end());
  CHECK(connect::decode_interface_news(several) ==
        News{{"eth1", State::down}, {"lo", State::gone}});
}

TEST_CASE("a port that leaves its bridge is not an interface that is gone") {
  CHECK(connect::decode_interface_news(message(RTM_DELLINK, 0, eth1, AF_BRIDGE)).empty());
}

TEST_CASE("messages that are cut or lie about a length are left out") {
  const Bytes whole = message(RTM_NEWLINK, 0, eth1);
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    // A copy of exactly this size, so that a sanitizer sees a read beyond its end.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    CHECK(connect::decode_interface_news(cut).empty());
  }
  const auto with = [&](std::size_t at, auto value) {
    Bytes bytes = whole;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return connect::decode_interface_news(bytes);
  };
  for (const std::uint32_t bytes : {0u, 3u, 15u, 16u, 31u, 32u, 1000u, 0xffffffffu}) {
    CAPTURE(bytes);
    CHECK(with(0, bytes).empty());
  }
  for (const std::uint16_t bytes : {0, 1, 3, 100, 0xffff}) {
    CAPTURE(bytes);
    CHECK(with(sizeof(nlmsghdr) + sizeof(ifinfomsg), bytes).empty());
  }
  CHECK(connect::decode_interface_news(message(RTM_NEWLINK, 0, "no end")).empty());
  CHECK(connect::decode_interface_news(message(RTM_NEWLINK, 0, std::string_view("\0", 1))).empty());
  CHECK(connect::decode_interface_news(
            message(RTM_NEWLINK, 0, std::string_view("longer than IFNAMSIZ\0", 21)))
            .empty());
}

}  // namespace rondo::testing
