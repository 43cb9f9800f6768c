// SPDX-License-Identifier: Apache-2.0
//
// Opens the devices that the user's choice allows, and takes from each port the best entry of its
// GID table. A port that cannot be used is kept with the reason, for `rondo info` and for errors.
#include "transports/rdma/devices.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <optional>
#include <utility>

#include <rondo/error.h>

#include "base/text.h"

namespace rondo::rdma {
namespace {

constexpr std::array<std::uint8_t, 12> ipv4_prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_ipv4(const Gid& gid) noexcept {
  return std::memcmp(gid.data(), ipv4_prefix.data(), ipv4_prefix.size()) == 0;
}
bool is_link_local(const Gid& gid) noexcept {
  return gid[0] == std::byte{0xfe} && (gid[1] & std::byte{0xc0}) == std::byte{0x80};
}
bool is_zero(const Gid& gid) noexcept {
  return std::ranges::all_of(gid, [](std::byte one) { return one == std::byte{}; });
}

GidKind kind_of(const ibv_gid_entry& entry, const Gid& gid) noexcept {
  if (entry.gid_type == IBV_GID_TYPE_IB) return GidKind::ib;
  if (entry.gid_type == IBV_GID_TYPE_ROCE_V1) return GidKind::roce_v1;
  if (is_ipv4(gid)) return GidKind::roce_v2_ipv4;
  return is_link_local(gid) ? GidKind::roce_v2_link_local : GidKind::roce_v2_ipv6;
}

std::string interface_name(unsigned index) {
  std::array<char, IF_NAMESIZE> name{};
  return index != 0 && ::if_indextoname(index, name.data()) != nullptr ? name.data() : "";
}

// An address handle has 8 bits for the index.
constexpr int most_gids = 256;

struct ChosenGid {
  unsigned index = 0;
  Gid gid{};
  GidKind kind = GidKind::ib;
  std::string interface;
};

// Entries that cannot be read are skipped: drivers leave holes in the table.
std::optional<ChosenGid> choose_gid(const Device& device, unsigned port, int table_entries,
                                    int wanted) {
  std::optional<ChosenGid> best;
  for (int index = 0; index < std::min(table_entries, most_gids); ++index) {
    if (wanted >= 0 && index != wanted) continue;
    ibv_gid_entry entry{};
    if (device.verbs().query_gid(device.context(), port, static_cast<unsigned>(index), &entry) != 0)
      continue;
    ChosenGid found{
        static_cast<unsigned>(index), {}, GidKind::ib, interface_name(entry.ndev_ifindex)};
    std::memcpy(found.gid.data(), entry.gid.raw, found.gid.size());
    if (is_zero(found.gid)) continue;
    found.kind = kind_of(entry, found.gid);
    if (!best || found.kind < best->kind) best = found;
  }
  return best;
}

// "2 (RoCE v1 10.0.0.7), 3 (RoCE v2 (IPv4) 10.0.0.7)": the entries that can be read.
std::string list_gids(const Device& device, unsigned port, int table_entries) {
  std::string all;
  for (int index = 0; index < table_entries; ++index)
    if (const auto one = choose_gid(device, port, table_entries, index))
      all += fmt::format("{}{} ({} {})", all.empty() ? "" : ", ", index, name_of(one->kind),
                         to_text(one->gid));
  return all.empty() ? "none" : all;
}

// ", 200 Gbit/s", or nothing where the port does not say it. Speed and width are as in PortInfo
// (InfiniBand Architecture Specification 1, 14.2.5.6).
std::string rate_text(const ibv_port_attr& port) {
  struct Speed {
    int code;
    double gbit;
  };
  constexpr Speed speeds[] = {{1, 2.5}, {2, 5},   {4, 10},  {8, 10},
                              {16, 14}, {32, 25}, {64, 50}, {128, 100}};
  constexpr std::array<std::pair<int, int>, 5> widths = {
      {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}}};
  const auto* const speed = std::ranges::find(speeds, int{port.active_speed}, &Speed::code);
  const auto* const width =
      std::ranges::find(widths, int{port.active_width}, &std::pair<int, int>::first);
  if (speed == std::end(speeds) || width == widths.end()) return {};
  return fmt::format(", {:g} Gbit/s", speed->gbit * width->second);
}

std::string_view state_text(ibv_port_state state) noexcept {
  switch (state) {
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing (is a subnet manager running?)";
    case IBV_PORT_ARMED:
      return "armed";
    default:
      return "in no known state";
  }
}

// Why a device cannot be used whatever its ports are; empty when it can.
std::string refusal(const ibv_device& device, std::string_view name) {
  if (device.transport_type == IBV_TRANSPORT_IWARP)
    return "iWARP has no write with immediate data: use tcp";
  if (name.starts_with("efa")) return "EFA has no reliable connections: use tcp";
  if (device.transport_type != IBV_TRANSPORT_IB)
    return "it is neither InfiniBand nor RoCE: use tcp";
  return {};
}

}  // namespace

std::string_view name_of(GidKind kind) noexcept {
  switch (kind) {
    case GidKind::roce_v2_ipv4:
      return "RoCE v2 (IPv4)";
    case GidKind::roce_v2_ipv6:
      return "RoCE v2 (IPv6)";
    case GidKind::roce_v2_link_local:
      return "RoCE v2 (link-local)";
    case GidKind::roce_v1:
      return "RoCE v1";
    case GidKind::ib:
      break;
  }
  return "InfiniBand";
}

std::string to_text(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (is_ipv4(gid))
    ::inet_ntop(AF_INET, gid.data() + ipv4_prefix.size(), text.data(), text.size());
  else
    ::inet_ntop(AF_INET6, gid.data(), text.data(), text.size());
  return text.data();
}

std::string name_of(const Port& port) {
  return fmt::format("{}:{}", port.device, port.number);
}

Device::Device(std::shared_ptr<Verbs> verbs, ibv_device* device, std::string name)
    : verbs_(std::move(verbs)), name_(std::move(name)) {
  context_ = verbs_->open_device(device);
  if (context_ == nullptr)
    throw Error(Errc::system, fmt::format("cannot be opened: {}", base::describe_errno(errno)));
  if (const int error = verbs_->query_device(context_, &limits_); error != 0) {
    verbs_->close_device(context_);
    throw Error(Errc::system, fmt::format("cannot be asked: {}", base::describe_errno(error)));
  }
  domain_ = verbs_->alloc_pd(context_);
  if (domain_ == nullptr) {
    const int error = errno;
    verbs_->close_device(context_);
    throw Error(Errc::system,
                fmt::format("gives no protection domain: {}", base::describe_errno(error)));
  }
  base::add_own_descriptor(context_->cmd_fd);
  base::add_own_descriptor(context_->async_fd);
}

Device::~Device() {
  if (generation_ != base::process_generation()) return;
  base::remove_own_descriptor(context_->cmd_fd);
  base::remove_own_descriptor(context_->async_fd);
  verbs_->dealloc_pd(domain_);
  verbs_->close_device(context_);
}

// The user's choice of devices and ports.
class Devices::Filter {
 public:
  explicit Filter(const std::vector<std::string>& lists) {
    for (const std::string& list : lists) {
      const bool all_excluded = list.starts_with('^');
      for (std::size_t begin = 0; begin <= list.size();) {
        const std::size_t end = std::min(list.find(',', begin), list.size());
        add(list.substr(begin, end - begin), all_excluded);
        begin = end + 1;
      }
    }
  }
  bool excludes(std::string_view device, unsigned port) {
    bool excluded = false, included = included_.empty();
    for (Item& item : excluded_) excluded |= item.matches(device, port);
    for (Item& item : included_) included |= item.matches(device, port);
    return excluded || !included;
  }
  // Throws Error(invalid_argument) if an item to include has matched nothing.
  void check(const std::vector<PortReport>& existing) const {
    for (const Item& item : included_) {
      if (item.matched) continue;
      std::string names;
      for (const PortReport& one : existing)
        names += fmt::format("{}{}:{}", names.empty() ? "" : ", ", one.device, one.port);
      throw Error(Errc::invalid_argument,
                  fmt::format("RONDO_RDMA_DEVICES: nothing matches '{}'; libibverbs shows {}",
                              item.text, names.empty() ? "no RDMA device" : names));
    }
  }

 private:
  struct Item {
    std::string text, name;
    bool prefix = false;
    std::optional<unsigned> port;
    bool matched = false;
    bool matches(std::string_view device, unsigned number) {
      const bool same = prefix ? device.starts_with(name) : device == name;
      if (!same || (port && *port != number)) return false;
      return matched = true;
    }
  };
  void add(const std::string& text, bool excluded) {
    Item item{text, text, false, {}, false};
    if (item.name.starts_with('^')) {
      item.name.erase(0, 1);
      excluded = true;
    }
    if (const auto colon = item.name.find(':'); colon != std::string::npos) {
      const auto number = base::parse_whole<unsigned>(item.name.substr(colon + 1));
      if (!number || *number == 0 || *number > 255) malformed(text);
      item.port = *number;
      item.name.resize(colon);
    }
    if (item.name.ends_with('*')) {
      item.name.pop_back();
      item.prefix = true;
    }
    if (item.name.empty() && !item.prefix) malformed(text);
    (excluded ? excluded_ : included_).push_back(std::move(item));
  }
  [[noreturn]] static void malformed(const std::string& text) {
    throw Error(
        Errc::invalid_argument,
        fmt::format("RONDO_RDMA_DEVICES: '{}' is malformed; give names like mlx5_0, mlx5_0:1 or "
                    "mlx5*, and ^ to exclude",
                    text));
  }
  std::vector<Item> included_, excluded_;
};

Devices::Devices(std::shared_ptr<Verbs> verbs, const DeviceChoice& choice)
    : verbs_(std::move(verbs)) {
  Filter filter(choice.filters);
  int count = 0;
  const std::unique_ptr<ibv_device*, std::function<void(ibv_device**)>> list(
      verbs_->get_device_list(&count), [&](ibv_device** one) {
        if (one != nullptr) verbs_->free_device_list(one);
      });
  if (list == nullptr) count = 0;
  std::vector<ibv_device*> found(list.get(), list.get() + count);
  std::ranges::sort(found, {},
                    [&](ibv_device* one) { return std::string(verbs_->device_name(one)); });
  for (ibv_device* const device : found) look_at(device, filter, choice);
  filter.check(reports_);
}

void Devices::look_at(ibv_device* device, Filter& filter, const DeviceChoice& choice) {
  const std::string name = verbs_->device_name(device);
  if (const std::string why = refusal(*device, name); !why.empty())
    return void(reports_.push_back({name, 1, false, why}));
  std::unique_ptr<Device> opened;
  try {
    opened = std::make_unique<Device>(verbs_, device, name);
  } catch (const Error& error) {
    return void(reports_.push_back({name, 1, false, error.what()}));
  }
  bool used = false;
  for (unsigned port = 1; port <= opened->limits().phys_port_cnt; ++port) {
    if (filter.excludes(name, port))
      reports_.push_back({name, port, false, "left out by the filter of devices"});
    else if (!used && devices_.size() == most_devices)
      reports_.push_back(
          {name, port, false, fmt::format("a rank uses at most {} devices", most_devices)});
    else
      used |= look_at_port(*opened, static_cast<std::uint8_t>(port), choice);
  }
  if (used) devices_.push_back(std::move(opened));
}

bool Devices::look_at_port(const Device& device, std::uint8_t number, const DeviceChoice& choice) {
  const auto refuse = [&](std::string why) {
    reports_.push_back({device.name(), number, false, std::move(why)});
    return false;
  };
  ibv_port_attr port{};
  if (const int error = verbs_->query_port(device.context(), number, &port); error != 0)
    return refuse(fmt::format("cannot be asked: {}", base::describe_errno(error)));
  if (port.state != IBV_PORT_ACTIVE)
    return refuse(fmt::format("the port is {}", state_text(port.state)));
  const auto gid = choose_gid(device, number, port.gid_tbl_len, choice.gid_index);
  if (!gid && choice.gid_index >= 0)
    return refuse(fmt::format("there is no GID with index {} (RONDO_RDMA_GID_INDEX); there are: {}",
                              choice.gid_index, list_gids(device, number, port.gid_tbl_len)));
  if (!gid)
    return refuse(
        "there is no GID: give the network interface behind the port an address, and set it up");
  const GidKind kind = port.link_layer == IBV_LINK_LAYER_ETHERNET ? gid->kind : GidKind::ib;
  ports_.push_back({device.name(), devices_.size(), number, kind, gid->gid,
                    static_cast<std::uint8_t>(gid->index), gid->interface, port.lid,
                    port.active_mtu});
  reports_.push_back(
      {device.name(), number, true,
       fmt::format("{}, GID {} {}{}{}, MTU {}{}", name_of(kind), gid->index, to_text(gid->gid),
                   gid->interface.empty() ? "" : " on ", gid->interface,
                   128u << static_cast<unsigned>(port.active_mtu), rate_text(port))});
  return true;
}

std::string Devices::obstacle() const {
  if (!ports_.empty()) return {};
  if (reports_.empty()) return "this machine has no RDMA device";
  std::string all;
  for (const PortReport& one : reports_)
    all += fmt::format("{}{}:{}: {}", all.empty() ? "" : "; ", one.device, one.port, one.text);
  return all;
}

}  // namespace rondo::rdma
