"""Words of what can go wrong on the way to the box, each with its remedy."""

EN = {
    "link.refused": "Nothing listens at {}: is the daemon up, is --url right?",
    "link.timeout": "{} does not answer in time: is the machine up, does a firewall drop it?",
    "link.name": "No such name: {}. Give its address with --url.",
    "link.url": "{} is no address: --url http://HOST:PORT or https://HOST:PORT.",
    "link.ended": "The box ended the connection: it restarts, or is stopped.",
    "link.broke": "The connection to {} broke: is the daemon up?",
    "link.cut": "The answer was cut off: the connection broke.",
    "link.failed": "No connection to {}: {}",
    "link.key": "The key is not accepted: wrong, expired or revoked. Set $STEELYARD_ADMIN_KEY, "
    "or make one on the box: steelyard keys create NAME --scope admin.",
    "link.no_key": "The box asks for a key. Set $STEELYARD_ADMIN_KEY, use --key-file, "
    "or make one on the box: steelyard keys create NAME --scope admin.",
    "link.scope": "The key lacks scope {0}: steelyard keys create NAME --scope {0} makes one.",
    "link.certificate": "The certificate is not trusted ({}): ^P, certificate, shows its "
    "fingerprint, or give the box's CA with --cacert FILE.",
    "link.tls": "No TLS with {}: {}",
    "link.ca": "--cacert cannot be used: {}. On the box: steelyard tls export-ca FILE.",
    "link.clear": "{} does not speak TLS: use http:// in --url.",
    "link.encrypted": "{} speaks TLS only: use https:// in --url.",
    "link.no_http": "What answers at {} is no Steelyard: it does not speak HTTP as the box does.",
    "link.other": "What answers at {} has no /events: no Steelyard, or an older one. Check --url, "
    "update the box.",
    "link.schema": "The box speaks another version ({}): use the steelyard of that version.",
    "link.host": "The box does not go by the name in {}: add it to server.allowed_hosts there.",
    "link.status": "HTTP {} from {}, without a reason.",
    "link.said": "{} [{}]",
}

ZH = {
    "link.refused": "{} 无人监听：守护进程是否在运行，端口是否正确（--url）？",
    "link.timeout": "{} 未及时响应：机器是否开机，是否被防火墙拦截？",
    "link.name": "找不到主机名：{}。请用 --url 给出地址。",
    "link.url": "{} 不是有效地址：--url http://HOST:PORT 或 https://HOST:PORT。",
    "link.ended": "设备关闭了连接：可能正在重启或已停止。",
    "link.broke": "与 {} 的连接中断：守护进程是否在运行？",
    "link.cut": "回答被截断：连接中断。",
    "link.failed": "无法连接 {}：{}",
    "link.key": "密钥未被接受：错误、过期或已撤销。请设置 $STEELYARD_ADMIN_KEY，"
    "或在设备上运行 steelyard keys create NAME --scope admin。",
    "link.no_key": "设备要求密钥。请设置 $STEELYARD_ADMIN_KEY 或 --key-file，"
    "或在设备上运行 steelyard keys create NAME --scope admin。",
    "link.scope": "密钥缺少权限 {0}：运行 steelyard keys create NAME --scope {0} 新建。",
    "link.certificate": "证书不受信任（{}）：按 ^P 选设备证书核对指纹，"
    "或用 --cacert FILE 指定设备的 CA。",
    "link.tls": "与 {} 的 TLS 失败：{}",
    "link.ca": "--cacert 不可用：{}。在设备上运行 steelyard tls export-ca FILE。",
    "link.clear": "{} 不使用 TLS：--url 请用 http://。",
    "link.encrypted": "{} 只接受 TLS：--url 请用 https://。",
    "link.no_http": "{} 处的服务不是 Steelyard：它的 HTTP 与设备不同。",
    "link.other": "{} 处没有 /events：不是 Steelyard 或版本太旧。请检查 --url，更新设备。",
    "link.schema": "设备的版本不同（{}）：请使用该版本的 steelyard 命令。",
    "link.host": "设备不认 {} 中的主机名：请在设备上加入 server.allowed_hosts。",
    "link.status": "{} {}，没有说明原因。",
    "link.said": "{} [{}]",
}
