"""Words of `steelyard status` alone."""

EN = {
    "status.certificate": "The certificate is not trusted ({}): give the box's CA with --cacert "
    "FILE (`steelyard tls export-ca FILE` on the box), or confirm it once in `steelyard tui`.",
    "status.bad_key": "What was given as a key is none: it has signs that no key has.",
    "status.silent": "{} answered, but sent no frame `live`: not a Steelyard, or an older one.",
    "status.lost": "LOST: {} Again in {} s.",
    "status.looked": "(No --url was given: {}, so the usual address was asked.)",
}

ZH = {
    "status.certificate": "证书不受信任（{}）：请用 --cacert FILE 给出设备的 CA"
    "（在设备上运行 steelyard tls export-ca FILE），或在 steelyard tui 中确认一次。",
    "status.bad_key": "给出的密钥无效：含有密钥不会有的字符。",
    "status.silent": "{} 有应答，但没有发来 live 帧：不是 Steelyard，或版本过旧。",
    "status.lost": "失联：{} {} s 后重试。",
    "status.looked": "（未给出 --url：{}，因此询问了默认地址。）",
}
